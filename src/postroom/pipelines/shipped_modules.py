"""Python modules from the files that came with a pipeline, in a process that has never seen them.

Each set of files has a package of its own, named by its content, so that two versions of an application never mix in
one process.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from postroom.pipelines.shipped_files import ShippedFiles

#: One import at a time: what a file imports from beside it is found by a finder that is there for that long.
_one_at_a_time = threading.RLock()


def module_from(files: ShippedFiles, path: str) -> ModuleType:
    """The module of one of the files, run once per process. It can import what stands beside it, by its name or with a
    leading dot, while it is run."""
    package = f"_shipped_{files.digest[:32]}"
    name = _module_name(package, path)
    with _one_at_a_time:
        if name in sys.modules:
            return sys.modules[name]
        finder = _Finder(package, files)
        before = set(sys.modules)
        sys.meta_path.insert(0, finder)
        try:
            return importlib.import_module(name)
        finally:
            sys.meta_path.remove(finder)
            # What was imported by its bare name is one of this set of files: it must not be found by another one.
            for other in [one for one in sys.modules if one not in before and one.partition(".")[0] in finder.tops]:
                del sys.modules[other]


def _module_name(package: str, path: str) -> str:
    stem = path.removesuffix(".py").removesuffix("/__init__")
    return ".".join([package, *stem.split("/")])


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds modules among the files: in the package of their own, and by their bare names."""

    def __init__(self, package: str, files: ShippedFiles) -> None:
        self._package = package
        self._files = files
        self.tops = {name.partition("/")[0].removesuffix(".py") for name in files.contents if name.endswith(".py")}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        first, _, rest = fullname.partition(".")
        if first == self._package:
            steps = rest.split(".") if rest else []
        elif first in self.tops:
            steps = fullname.split(".")
        else:
            return None
        file = "/".join(steps)
        for found, is_package in ((f"{file}.py", False), (f"{file}/__init__.py", True)):
            if found in self._files.contents:
                return self._spec(fullname, found, is_package=is_package)
        is_folder = not file or any(name.startswith(f"{file}/") for name in self._files.contents)
        return self._spec(fullname, "", is_package=True) if is_folder else None

    def _spec(self, fullname: str, file: str, *, is_package: bool) -> ModuleSpec:
        spec = importlib.util.spec_from_loader(fullname, self, origin=file or None, is_package=is_package)
        assert spec is not None
        spec.loader_state = file
        return spec

    def get_source(self, fullname: str) -> str | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        file = module.__spec__.loader_state
        if file:
            module.__file__ = f"<{self._package}>/{file}"
            exec(compile(self._files.contents[file], module.__file__, "exec", dont_inherit=True), vars(module))
