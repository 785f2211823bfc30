"""Imports Python modules from shipped files, and finds the files that a module imports.

Each set of files has a package of its own, named by its content, so that two versions of an application do not mix in
one process.
"""

from __future__ import annotations

import ast
import builtins
import importlib.abc
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from postroom.pipelines.shipping.shipped_files import ShippedFiles


def import_shipped_module(files: ShippedFiles, path: str) -> ModuleType:
    """Import the module of one of the files, once per process. It can import the other files, by name or with a leading
    dot.

    Python locks each module while it is executed. A file that never returns blocks only the threads that need it."""
    package = f"_shipped_{files.digest[:32]}"
    # Two threads may both add a finder, which does no harm.
    if not any(isinstance(finder, _Finder) and finder.package == package for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(package, files))
    stem = path.removesuffix(".py").removesuffix("/__init__")
    return importlib.import_module(".".join([package, *stem.split("/")]))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds the modules of a set of files in their own package, and for imports inside these files also by bare
    names."""

    def __init__(self, package: str, files: ShippedFiles) -> None:
        self.package = package
        self._files = files
        self._builtins = {**vars(builtins), "__import__": self._import}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        first, _, rest = fullname.partition(".")
        if first != self.package or (found := self._find_file(rest)) is None:
            return None
        file, is_package = found
        spec = importlib.util.spec_from_loader(fullname, self, origin=file or None, is_package=is_package)
        assert spec is not None
        spec.loader_state = file
        return spec

    def _find_file(self, name: str) -> tuple[str, bool] | None:
        """Return the file of a module and True if it is a package. A folder without a file is a package."""
        path_in_set = name.replace(".", "/")
        for file, is_package in ((f"{path_in_set}.py", False), (f"{path_in_set}/__init__.py", True)):
            if file in self._files.contents:
                return file, is_package
        is_folder = not path_in_set or any(file.startswith(f"{path_in_set}/") for file in self._files.contents)
        return ("", True) if is_folder else None

    def get_source(self, fullname: str) -> str | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        file = module.__spec__.loader_state
        if file:
            module.__file__ = f"<{self.package}>/{file}"
            vars(module)["__builtins__"] = self._builtins
            exec(compile(self._files.contents[file], module.__file__, "exec", dont_inherit=True), vars(module))

    def _import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Implement ``import`` in these files. A bare name is searched among them first. Other sets of files do not see
        it, because two sets may have modules of the same name."""
        first = name.partition(".")[0]
        # A module of the standard library that is loaded takes precedence.
        is_standard = first in sys.stdlib_module_names and first in sys.modules
        if level or is_standard or self._find_file(name) is None:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        found = builtins.__import__(f"{self.package}.{name}", globals, locals, fromlist or (), 0)
        return found if fromlist else sys.modules[f"{self.package}.{first}"]


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
            for start, name in read_imports(node, folder, parent):
                pending += find_files(folder, start, name)
    return sorted(found)


def read_imports(node: ast.AST, folder: Path, parent: Path) -> Iterator[tuple[Path, str]]:
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


def find_files(folder: Path, start: Path, name: str) -> Iterator[str]:
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
