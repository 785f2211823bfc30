"""Find the code that a function reaches in the files of its application: what it calls and reads, and so on.

Only the source is read, so the result is the same in every process. What is not certain counts as reached: every
statement at the top level of a file that gives a name its value, or changes it. Code of libraries is not followed.
Texts have no comments and no docstrings.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from postroom.pipelines.shipping.modules import find_files, find_imported_files, read_imports

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
#: The methods of an application that declare where messages are sent. Code refers to these ports by their names.
_PORTS = ("send_port", "dynamic_send_port", "send_port_group")
#: The decorator of an orchestration, and the arguments that are stored nowhere else, or are code.
_DECLARATION, _ARGUMENTS = "orchestration", ("maps", "pipelines", "journal_limits")


@dataclass(frozen=True, kw_only=True)
class ReachedCode:
    """The texts of what a function reaches, each with its file and its lines."""

    texts: frozenset[tuple[str, tuple[int, int], str]]

    @property
    def digest(self) -> str:
        """A digest of the texts, wherever they are in their files."""
        return _digest(sorted({f"{file}\0{text}" for file, _, text in self.texts}))

    @property
    def located_digest(self) -> str:
        """A digest of the texts and of their lines, which tracebacks show."""
        return _digest(sorted(f"{file}\0{lines}\0{text}" for file, lines, text in self.texts))


def find_reached_code(function: Callable[..., Any], folder: Path) -> ReachedCode | None:
    """Return the code that a function at the top level of a file in ``folder`` reaches. Return None if it is defined
    anywhere else, or if its source is not in the file."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return None
    folder, path = folder.resolve(), Path(code.co_filename).resolve()
    if not path.is_relative_to(folder):
        return None
    search = _Search(folder)
    file = search.open(path.relative_to(folder).as_posix())
    start = next((one for one in file.definitions if _get_first_line(one) == code.co_firstlineno), None)
    if start is None:
        return None
    search.follow(file, start)
    return ReachedCode(texts=frozenset(search.texts))


def _digest(texts: list[str]) -> str:
    return hashlib.sha256("\0\0".join(texts).encode()).hexdigest()[:16]


def _get_first_line(definition: _Definition) -> int:
    return min([definition.lineno, *(one.lineno for one in definition.decorator_list)])


@dataclass
class _File:
    """A file of the application. What cannot be parsed has no statements."""

    name: str
    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        try:
            return ast.parse(self.path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            return ast.Module(body=[], type_ignores=[])

    @cached_property
    def definitions(self) -> list[_Definition]:
        """The functions and classes at the top level, also inside an ``if`` or a ``try``."""
        return [node for one in self.tree.body for node in _walk(one) if isinstance(node, _Definition)]

    @cached_property
    def statements(self) -> dict[str, list[ast.stmt]]:
        """The statements that give a name its value, by the name."""
        return self._group(_list_bound)

    @cached_property
    def changes(self) -> dict[str, list[ast.stmt]]:
        """The statements that change the value of a name, by the name."""
        return self._group(_list_changed)

    def _group(self, list_names: Callable[[ast.stmt], Iterator[str]]) -> dict[str, list[ast.stmt]]:
        found: dict[str, list[ast.stmt]] = defaultdict(list)
        for statement in self.tree.body:
            for name in dict.fromkeys(list_names(statement)):
                found[name].append(statement)
        return dict(found)

    @cached_property
    def applications(self) -> set[str]:
        """The names of applications. Other statements that use them declare something else."""
        return {
            target.id
            for one in self.tree.body
            if isinstance(one, ast.Assign | ast.AnnAssign) and isinstance(one.value, ast.Call)
            if _get_last_name(one.value.func).endswith("Application")
            for target in (one.targets if isinstance(one, ast.Assign) else [one.target])
            if isinstance(target, ast.Name)
        }


@dataclass
class _Search:
    folder: Path
    texts: set[tuple[str, tuple[int, int], str]] = field(default_factory=set)
    _files: dict[str, _File] = field(default_factory=dict)
    _seen: set[ast.AST] = field(default_factory=set)

    def open(self, name: str) -> _File:
        return self._files.setdefault(name, _File(name=name, path=self.folder / name))

    def follow(self, file: _File, start: ast.stmt) -> None:
        """Add the text of a statement, and of everything that it reaches."""
        pending = [(file, start)]
        while pending:
            file, statement = pending.pop()
            if statement in self._seen:
                continue
            self._seen.add(statement)
            text = _reduce(statement, file.applications)
            lines = (statement.lineno, statement.end_lineno or 0)
            self.texts.add((file.name, lines, ast.unparse(text)))
            pending += self._list_reached(file, text)

    def _list_reached(self, file: _File, code: ast.AST) -> Iterator[tuple[_File, ast.stmt]]:
        calls = (node for node in ast.walk(code) if isinstance(node, ast.Call))
        # An orchestration that is started runs by itself.
        started = {id(call.args[0]) for call in calls if call.args and _get_last_name(call.func) == "start"}
        names = [
            node
            for node in ast.walk(code)
            if isinstance(node, ast.Name) and not (id(node) in started and _is_orchestration(file, node.id))
        ]
        owners = {id(node.value): node.attr for node in ast.walk(code) if isinstance(node, ast.Attribute)}
        for name in names:
            yield from self._find(file, name.id, owners.get(id(name)))
        for node in ast.walk(code):
            if isinstance(node, ast.Import | ast.ImportFrom):  # inside a function
                for alias in node.names:
                    self._add_modules(self._list_files(file, node, alias.name))

    def _find(self, file: _File, name: str, attribute: str | None) -> Iterator[tuple[_File, ast.stmt]]:
        """Yield the statements that a name, or an attribute of a module with this name, stands for."""
        if name in file.applications:
            return
        statements = file.statements.get(name)
        if statements is None:
            for one in file.statements.get("*", ()):
                for other in self._list_files(file, one, "*"):
                    yield from self._find(self.open(other), name, None)
            return
        for statement in statements:
            if not isinstance(statement, ast.Import | ast.ImportFrom):
                yield file, statement
                continue
            alias = next(one for one in statement.names if _get_bound_name(one) == name)
            files = self._list_files(file, statement, alias.name)
            if not files:  # a library
                imported = deepcopy(statement)
                imported.names = [alias]
                self.texts.add((file.name, (0, 0), ast.unparse(imported)))
                return
            yield from self._find_imported(files, statement, alias, attribute)
        for statement in file.changes.get(name, ()):
            yield file, statement

    def _find_imported(
        self, files: list[str], statement: ast.Import | ast.ImportFrom, alias: ast.alias, attribute: str | None
    ) -> Iterator[tuple[_File, ast.stmt]]:
        """Yield what an imported name stands for, in the last of these files."""
        module = self.open(files[-1])
        stem = module.name.removesuffix(".py").removesuffix("/__init__").rpartition("/")[2]
        is_module = isinstance(statement, ast.Import) or (stem == alias.name and alias.name not in module.statements)
        wanted = attribute if is_module else alias.name
        is_path = isinstance(statement, ast.Import) and "." in alias.name and alias.asname is None
        if wanted is not None and wanted in module.statements and not is_path:
            yield from self._find(module, wanted, None if is_module else attribute)
            return
        # The whole module is used, or something that is not found in it.
        self._add_modules(files)

    def _add_modules(self, files: list[str]) -> None:
        """Add the whole text of files, and of those that they import."""
        for name in {imported for one in files for imported in find_imported_files(self.folder, one)}:
            self.texts.add((name, (0, 0), ast.unparse(self.open(name).tree)))

    def _list_files(self, file: _File, statement: ast.stmt, name: str) -> list[str]:
        """Return the files of the application that an import names, the package first."""
        found: list[str] = []
        for start, dotted in read_imports(statement, self.folder, file.path.parent):
            is_from = isinstance(statement, ast.ImportFrom)
            if name == (dotted.rpartition(".")[2] if is_from else dotted):
                found += find_files(self.folder, start, dotted)
        return found


def _walk(statement: ast.AST) -> Iterator[ast.AST]:
    """Yield a statement and what is inside it, without the bodies of functions and classes."""
    yield statement
    if not isinstance(statement, _Definition | ast.Lambda):
        for child in ast.iter_child_nodes(statement):
            yield from _walk(child)


def _list_bound(statement: ast.stmt) -> Iterator[str]:
    """Yield the names to which a statement gives a value. ``*`` is an import of everything."""
    for node in _walk(statement):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name):
                yield name
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from map(_get_bound_name, aliases)


def _list_changed(statement: ast.stmt) -> Iterator[str]:
    """Yield the names whose values a statement changes: ``table["a"] = 1``, ``table.update(...)``,
    ``@table.register``."""
    for node in _walk(statement):
        match node:
            case ast.Subscript(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store() | ast.Del()):
                yield from _get_root(node)
            case ast.Call(func=ast.Attribute() as method):
                yield from _get_root(method)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                for decorator in node.decorator_list:
                    called = decorator.func if isinstance(decorator, ast.Call) else decorator
                    if isinstance(called, ast.Attribute):
                        yield from _get_root(called)


def _get_root(node: ast.expr) -> Iterator[str]:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id


def _get_bound_name(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _get_last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_declaration(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == _DECLARATION


def _is_orchestration(file: _File, name: str) -> bool:
    """Return True if this is an orchestration of the file."""
    definitions = (one for one in file.definitions if one.name == name)
    return any(_is_declaration(decorator) for one in definitions for decorator in one.decorator_list)


def _reduce(statement: ast.stmt, applications: set[str]) -> ast.stmt:
    """Return a statement without what is not code of the function: docstrings, settings of an orchestration that its
    definition has, and the settings of a send port."""
    match statement:
        case ast.Assign(value=ast.Call(func=ast.Attribute(attr=method) as function, args=[name, *_])) if (
            method in _PORTS and next(_get_root(function), "") in applications
        ):
            named = ast.Call(func=function, args=[name], keywords=[])
            return ast.Assign(targets=statement.targets, value=named, lineno=statement.lineno)
    reduced = deepcopy(statement)
    for node in ast.walk(reduced):
        if not isinstance(node, _Definition):
            continue
        for decorator in filter(_is_declaration, node.decorator_list):
            assert isinstance(decorator, ast.Call)
            decorator.keywords = [one for one in decorator.keywords if one.arg in _ARGUMENTS]
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return reduced
