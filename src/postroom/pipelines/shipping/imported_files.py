"""Which files of a folder a Python file needs: itself, and whatever it imports from beside it, and so on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def imported_files(folder: Path, first: str) -> list[str]:
    """Paths relative to ``folder``; ``first`` is one of them. A file that cannot be read as Python imports nothing."""
    found: list[str] = []
    waiting = [first]
    while waiting:
        file = waiting.pop()
        if file in found:
            continue
        found.append(file)
        try:
            tree = ast.parse((folder / file).read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue
        beside = (folder / file).parent
        for node in ast.walk(tree):
            for start, name in _imports(node, folder, beside):
                waiting += _files_of(folder, start, name)
    return sorted(found)


def _imports(node: ast.AST, folder: Path, beside: Path) -> Iterator[tuple[Path, str]]:
    """Where to look, and for which dotted name."""
    match node:
        case ast.Import(names=names):
            for alias in names:
                yield folder, alias.name
        case ast.ImportFrom(module=module, names=names, level=0) if module:
            for alias in names:
                yield folder, f"{module}.{alias.name}"
        case ast.ImportFrom(module=module, names=names, level=level):
            start = beside
            for _ in range(level - 1):
                start = start.parent
            for alias in names:
                yield start, f"{module}.{alias.name}" if module else alias.name


def _files_of(folder: Path, start: Path, name: str) -> Iterator[str]:
    """The modules along a dotted name, as far as they are in the folder; the last step may be no module at all."""
    place = start
    for step in name.split("."):
        for file in (place / f"{step}.py", place / step / "__init__.py"):
            if file.is_file() and file.is_relative_to(folder):
                yield file.relative_to(folder).as_posix()
        place = place / step
