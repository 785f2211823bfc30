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
    components = list(_find_components(after))
    for name in old:
        if old[name] == new[name]:
            continue
        names = {component for file, component in components if file == name}
        is_shared = any(_mentions(content, name) for other, content in new.items() if other != name)
        used = None if is_shared or not names else names
        if not name.endswith(".py") or _read_used_code(old[name], used) != _read_used_code(new[name], used):
            return False
    return True


def _find_components(stored: object) -> Iterator[tuple[str, str]]:
    """Yield the file and the name of each component in a stored definition."""
    if isinstance(stored, Mapping):
        file, name = stored.get("file"), stored.get("name")
        if isinstance(file, str) and isinstance(name, str):
            yield file, name.partition(".")[0]
        for value in stored.values():
            yield from _find_components(value)
    elif isinstance(stored, list | tuple):
        for value in stored:
            yield from _find_components(value)


def _mentions(content: bytes, file: str) -> bool:
    """Return True if the content of a file may import another file."""
    module = file.removesuffix(".py").removesuffix("/__init__").rpartition("/")[2]
    return module.encode() in content


def _read_used_code(content: bytes, names: set[str] | None) -> Sequence[str] | bytes:
    """Return the statements that code with these names uses, without their positions. None stands for all code."""
    try:
        module = ast.parse(content)
    except (SyntaxError, ValueError):
        return content
    if names is None or _DYNAMIC & set(_find_names(module)):
        return [ast.dump(module)]
    package_names = _PackageNames()
    optional = [package_names.read(statement) for statement in module.body]
    used, chosen = set(names), {number for number, bound in enumerate(optional) if bound is None}
    while True:
        for number in chosen:
            used |= {node.id for node in ast.walk(module.body[number]) if isinstance(node, ast.Name)}
        found = {number for number, bound in enumerate(optional) if bound is not None and bound & used} - chosen
        if not found:
            return [_dump_statement(module.body[number], used) for number in sorted(chosen)]
        chosen |= found


def _find_names(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.name.partition(".")[0]


def _dump_statement(statement: ast.stmt, used: set[str]) -> str:
    if isinstance(statement, ast.ImportFrom) and _is_of_package(statement.module):
        # An import for other code in the same file does not matter.
        names = [alias for alias in statement.names if (alias.asname or alias.name) in used]
        statement = ast.ImportFrom(module=statement.module, names=names, level=statement.level)
    return ast.dump(statement)


class _PackageNames:
    """The names in a file that stand for objects of Postroom. Statements are read in order."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def read(self, statement: ast.stmt) -> set[str] | None:
        """Return the names that a statement binds, if it does nothing else. Return None if it may have an effect on
        other code."""
        match statement:
            case ast.ImportFrom(module=module, names=aliases) if _is_of_package(module):
                bound = {alias.asname or alias.name for alias in aliases}
                self._names |= bound
                return bound
            case ast.Import(names=[ast.alias(name=module, asname=alias)]) if _is_of_package(module):
                self._names.add(alias or _PACKAGE)
                return {alias or _PACKAGE}
            case ast.Expr(value=ast.Constant()):
                return set()
            case ast.Expr(value=ast.Call() as call) if self._is_of_package(call) and not _has_inner_bindings(call):
                return set()  # such as app.send_port(...)
            case ast.Assign(targets=targets, value=value) if self._is_pure(value):
                return self._bind(targets, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value) if self._is_pure(value):
                return self._bind([target], value)
            case ast.FunctionDef(name=name, decorator_list=[], args=arguments) if not _find_calls(arguments):
                return {name}
            case ast.ClassDef(name=name, decorator_list=[], keywords=[], bases=bases) if all(
                self._is_of_package(base) for base in bases
            ):
                return {name}
        return None

    def _bind(self, targets: Sequence[ast.expr], value: ast.expr) -> set[str] | None:
        bound = {target.id for target in targets if isinstance(target, ast.Name)}
        if len(bound) != len(targets):
            return None
        if self._is_of_package(value):
            self._names |= bound
        return bound

    def _is_pure(self, value: ast.expr) -> bool:
        return all(self._is_of_package(call) for call in _find_calls(value)) and not _has_inner_bindings(value)

    def _is_of_package(self, node: ast.expr) -> bool:
        """Return True if the expression starts at an object of Postroom, as ``app.receive_port(…).location(…)``
        does."""
        while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
            node = node.func if isinstance(node, ast.Call) else node.value
        return isinstance(node, ast.Name) and node.id in self._names


def _is_of_package(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] == _PACKAGE


def _find_calls(node: ast.AST) -> list[ast.Call]:
    return [inside for inside in ast.walk(node) if isinstance(inside, ast.Call)]


def _has_inner_bindings(node: ast.AST) -> bool:
    return any(isinstance(inside, ast.NamedExpr | ast.Await | ast.Yield) for inside in ast.walk(node))
