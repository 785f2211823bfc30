"""Compares the shipped files of two versions of a definition by what its components use of them.

An application often declares everything in one file: ports, filters, and the functions of its pipelines. The file is
shipped with each pipeline that uses one of its functions. A changed filter in it must not change those pipelines.

Only statements without an effect on other code are left out: declarations of the application, and definitions that the
components do not use, directly or indirectly. In case of doubt a statement counts.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from postroom.pipelines.shipping.shipped_files import ShippedFiles

#: Code with these names can use definitions without naming them.
_DYNAMIC = {"__import__", "eval", "exec", "globals", "importlib", "inspect", "locals", "sys", "vars"}
_PACKAGE = __name__.partition(".")[0]


def runs_equal_code(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return True if the files of two stored definitions with the same components are equal for these components."""
    try:
        old, new = (ShippedFiles.from_stored(stored.get("files") or {}).contents for stored in (before, after))
    except ValueError:
        return False  # damaged files are stored again
    if old.keys() != new.keys():
        return False
    components = set(_find_components(after))
    for file in old:
        if old[file] == new[file]:
            continue
        module = file.removesuffix(".py").removesuffix("/__init__").rpartition("/")[2].encode()
        is_shared = any(module in content for other, content in new.items() if other != file)
        used = {name for place, name in components if place == file and not is_shared}
        if not file.endswith(".py") or _read_used_code(old[file], used) != _read_used_code(new[file], used):
            return False
    return True


def _find_components(stored: object) -> Iterator[tuple[str, str]]:
    """Yield the file and the name of each component in a stored definition."""
    if isinstance(stored, Mapping):
        file, name = stored.get("file"), stored.get("name")
        if isinstance(file, str) and isinstance(name, str):
            yield file, name.partition(".")[0]
        stored = list(stored.values())
    if isinstance(stored, list | tuple):
        for value in stored:
            yield from _find_components(value)


def _read_used_code(content: bytes, names: set[str]) -> Sequence[str] | bytes:
    """Return the statements that code with these names uses, without their positions. No names stand for all code."""
    try:
        module = ast.parse(content)
    except (SyntaxError, ValueError):
        return content
    nodes = list(ast.walk(module))
    imported = {node.name.partition(".")[0] for node in nodes if isinstance(node, ast.alias)}
    if not names or _DYNAMIC & (imported | {node.id for node in nodes if isinstance(node, ast.Name)}):
        return [ast.dump(module)]
    statements = [single for statement in module.body for single in _split_import(statement)]
    own: set[str] = set()
    optional = [_find_bindings(statement, own) for statement in statements]
    used, chosen = set(names), {number for number, bound in enumerate(optional) if bound is None}
    while True:
        for number in chosen:
            used |= {node.id for node in ast.walk(statements[number]) if isinstance(node, ast.Name)}
        found = {number for number, bound in enumerate(optional) if bound is not None and bound & used} - chosen
        if not found:
            return [ast.dump(statements[number]) for number in sorted(chosen)]
        chosen |= found


def _split_import(statement: ast.stmt) -> list[ast.stmt]:
    """Return one statement for each imported name, so that imports for other code in the same file do not matter."""
    match statement:
        case ast.Import(names=aliases):
            return [ast.Import(names=[alias]) for alias in aliases]
        case ast.ImportFrom(module=module, names=aliases, level=level):
            return [ast.ImportFrom(module=module, names=[alias], level=level) for alias in aliases]
    return [statement]


def _find_bindings(statement: ast.stmt, own: set[str]) -> set[str] | None:
    """Return the names that a statement binds, if it does nothing else. Return None if it may have an effect on other
    code. Statements are read in order: ``own`` gets the names that stand for objects of Postroom."""
    match statement:
        case ast.Import(names=[ast.alias(name=path, asname=name)]) if _is_of_package(path):
            own.add(name or _PACKAGE)
            return {name or _PACKAGE}
        case ast.ImportFrom(module=str(path), names=[alias]) if _is_of_package(path):
            own.add(alias.asname or alias.name)
            return {alias.asname or alias.name}
        case ast.Expr(value=value) if _is_declaration(value, own):  # such as app.send_port(...)
            return set()
        case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value) if _is_declaration(value, own):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            bound = {target.id for target in targets if isinstance(target, ast.Name)}
            if _starts_at(value, own):
                own |= bound
            return bound if len(bound) == len(targets) else None
        case ast.FunctionDef(name=name, decorator_list=[], args=arguments) if _is_declaration(arguments, set()):
            return {name}
        case ast.ClassDef(name=name, decorator_list=[], keywords=[], bases=bases):
            return {name} if all(_starts_at(base, own) for base in bases) else None
    return None


def _is_of_package(module: str) -> bool:
    return module.partition(".")[0] == _PACKAGE


def _is_declaration(node: ast.AST, own: set[str]) -> bool:
    """Return True if evaluating a node calls nothing but Postroom, and binds no names."""
    inside = list(ast.walk(node))
    calls = [each for each in inside if isinstance(each, ast.Call)]
    binds = any(isinstance(each, ast.NamedExpr | ast.Await | ast.Yield) for each in inside)
    return not binds and (_starts_at(node, own) or all(_starts_at(call, own) for call in calls))


def _starts_at(node: ast.AST, own: set[str]) -> bool:
    """Return True if an expression starts at one of the names, as ``app.receive_port(…).location(…)`` does at app."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return isinstance(node, ast.Name) and node.id in own
