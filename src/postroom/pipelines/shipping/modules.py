"""Python modules from the files that came with a pipeline, in a process that has never seen them.

Each set of files has a package of its own, named by its content, so that two versions of an application never mix in
one process.
"""

from __future__ import annotations

import builtins
import importlib.abc
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from postroom.pipelines.shipping.files import ShippedFiles


def module_from(files: ShippedFiles, path: str) -> ModuleType:
    """The module of one of the files, run once per process. It can import what stands beside it, by its name or with a
    leading dot.

    Python locks each module while it is run, and no others are waited for: a file that never comes to its end keeps
    only those waiting that need it."""
    package = f"_shipped_{files.digest[:32]}"
    # Two threads may both find none, and two finders do no harm.
    if not any(isinstance(finder, _Finder) and finder.package == package for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(package, files))
    return importlib.import_module(_module_name(package, path))


def _module_name(package: str, path: str) -> str:
    stem = path.removesuffix(".py").removesuffix("/__init__")
    return ".".join([package, *stem.split("/")])


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds the modules of a set of files in the package of their own; for them, by their bare names too."""

    def __init__(self, package: str, files: ShippedFiles) -> None:
        self.package = package
        self._files = files
        self._builtins = {**vars(builtins), "__import__": self._import}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        first, _, rest = fullname.partition(".")
        if first != self.package or (found := self._found(rest)) is None:
            return None
        file, is_package = found
        spec = importlib.util.spec_from_loader(fullname, self, origin=file or None, is_package=is_package)
        assert spec is not None
        spec.loader_state = file
        return spec

    def _found(self, name: str) -> tuple[str, bool] | None:
        """The file of a module, and whether it is a package; a folder without a file is one."""
        place = name.replace(".", "/")
        for file, is_package in ((f"{place}.py", False), (f"{place}/__init__.py", True)):
            if file in self._files.contents:
                return file, is_package
        is_folder = not place or any(file.startswith(f"{place}/") for file in self._files.contents)
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
        """What ``import`` does in these files. A bare name is looked for among them, and is known to them only: two
        sets may have modules of one name."""
        first = name.partition(".")[0]
        # What Python has loaded of its own is not looked for in any folder.
        is_pythons = first in sys.stdlib_module_names and first in sys.modules
        if level or is_pythons or self._found(name) is None:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        found = builtins.__import__(f"{self.package}.{name}", globals, locals, fromlist or (), 0)
        return found if fromlist else sys.modules[f"{self.package}.{first}"]
