"""A module for a user's file, which can import what stands beside it and leaves no trace in the process."""

from __future__ import annotations

import importlib.util
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from postroom.application.place import is_ours


@contextmanager
def module_beside(path: Path) -> Iterator[ModuleType]:
    """An empty module for the file at ``path``.

    Until the end, ``import schemas`` and ``from .schemas import Region`` find ``schemas.py`` in the same folder;
    afterwards nothing of it is left in ``sys``.
    """
    folder = path.resolve().parent
    package = f"_application_{uuid.uuid4().hex}"
    parent = ModuleSpec(package, None, is_package=True)
    parent.submodule_search_locations = [str(folder)]
    own = importlib.util.spec_from_file_location(f"{package}.{path.stem.replace('.', '_')}", path)
    assert own is not None
    search_path, loaded, without_bytecode = list(sys.path), set(sys.modules), sys.dont_write_bytecode
    try:
        sys.path.insert(0, str(folder))
        sys.dont_write_bytecode = True
        sys.modules[package] = importlib.util.module_from_spec(parent)
        module = sys.modules[own.name] = importlib.util.module_from_spec(own)
        yield module
    finally:
        sys.path[:] = search_path
        sys.dont_write_bytecode = without_bytecode
        sys.path_importer_cache.pop(str(folder), None)
        for name in [name for name in sys.modules if name not in loaded and _is_beside(name, package, folder)]:
            del sys.modules[name]


def _is_beside(name: str, package: str, folder: Path) -> bool:
    top = name.partition(".")[0]
    return top == package or (not is_ours(name) and _container(sys.modules.get(top)) == folder)


def _container(module: ModuleType | None) -> Path | None:
    """The folder in which a top-level module or package was found."""
    spec = getattr(module, "__spec__", None)
    if spec is None:
        return None
    found = next(iter(spec.submodule_search_locations or ()), spec.origin if spec.has_location else None)
    return None if found is None else Path(found).parent
