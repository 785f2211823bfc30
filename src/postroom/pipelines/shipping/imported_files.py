"""Finds the files of a folder that a Python file imports, directly or indirectly."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from postroom.pipelines.shipping.shipped_files import ShippedFiles


def find_imported_files(folder: Path, first: str) -> list[str]:
    """Return the paths relative to ``folder``, including ``first``. A file that is not valid Python imports nothing."""
    found: list[str] = []
    pending = [first]
    while pending:
        file = pending.pop()
        if file in found:
            continue
        found.append(file)
        try:
            tree = ast.parse((folder / file).read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue
        parent = (folder / file).parent
        for node in ast.walk(tree):
            for start, name in _read_imports(node, folder, parent):
                pending += _find_files(folder, start, name)
    return sorted(found)


def _read_imports(node: ast.AST, folder: Path, parent: Path) -> Iterator[tuple[Path, str]]:
    """Yield the folder to search and the dotted name of each import."""
    match node:
        case ast.Import(names=names):
            for alias in names:
                yield folder, alias.name
        case ast.ImportFrom(module=module, names=names, level=0) if module:
            for alias in names:
                yield folder, f"{module}.{alias.name}"
        case ast.ImportFrom(module=module, names=names, level=level):
            start = parent
            for _ in range(level - 1):
                start = start.parent
            for alias in names:
                yield start, f"{module}.{alias.name}" if module else alias.name


def _find_files(folder: Path, start: Path, name: str) -> Iterator[str]:
    """Yield the modules on a dotted name that are in the folder. The last step need not be a module."""
    location = start
    for step in name.split("."):
        for file in (location / f"{step}.py", location / step / "__init__.py"):
            if file.is_file() and file.is_relative_to(folder):
                yield file.relative_to(folder).as_posix()
        location = location / step


def digest_code(file: Path) -> str:
    """Return a digest of a file and of the files that it imports from its folder. Raise OSError if it cannot be
    read."""
    names = find_imported_files(file.parent, file.name)
    return ShippedFiles({name: (file.parent / name).read_bytes() for name in names}).digest[:16]
