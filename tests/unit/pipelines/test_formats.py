"""A new format is a package, an entry in the list of formats, and a public name. Nothing else distinguishes formats."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import postroom
from postroom.pipelines.definition import Format, PassThrough

SOURCE = Path(postroom.__file__).parent


def find_formats(base: type[Format] = Format) -> Iterator[str]:
    for format in base.__subclasses__():
        if format.__module__.startswith("postroom.") and format is not PassThrough:
            yield format.__name__
        yield from find_formats(format)


def find_distinguished(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each class in an isinstance or a match."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, classes]):
                yield from ((each.lineno, each.id) for each in ast.walk(classes) if isinstance(each, ast.Name))
            case ast.MatchClass(cls=ast.Name(id=name)):
                yield node.lineno, name


def test_no_code_distinguishes_formats() -> None:
    formats = set(find_formats())
    assert {"Json", "Xml", "Csv", "FlatFile"} <= formats
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {name}"
        for path in SOURCE.rglob("*.py")
        for line, name in find_distinguished(ast.parse(path.read_bytes()))
        if name in formats
    ]
    assert found == []


def test_two_files_name_a_format_outside_its_package() -> None:
    named = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if "JsonLines" in path.read_text()}
    outside = {path for path in named if not path.startswith(("pipelines/json/", "examples/"))}
    assert outside == {"pipelines/__init__.py", "pipelines/receive/definition.py"}
