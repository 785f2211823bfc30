"""A package with adapters, as it is after its installation: a module, and metadata with entry points."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from postroom.adapters import kinds


def install_package(folder: Path, name: str, source: str, entry_points: Mapping[str, str]) -> None:
    """Write a package with one module of its name into a folder that is in ``sys.path``."""
    (folder / f"{name}.py").write_text(source, encoding="utf-8")
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    lines = ["[postroom.adapters]", *(f"{kind} = {target}" for kind, target in entry_points.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


@contextmanager
def folder_for_packages(folder: Path) -> Iterator[Path]:
    """Import packages from a folder during the block. Their modules are forgotten after it."""
    known = set(sys.modules)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield folder
    finally:
        sys.path.remove(str(folder))
        kinds._load_from_package.cache_clear()
        for name in set(sys.modules) - known:
            del sys.modules[name]


@contextmanager
def adapter_package(folder: Path, source: str, **entry_points: str) -> Iterator[ModuleType]:
    """Install a package ``acme`` whose adapters have these kinds during the block, and yield its module."""
    with folder_for_packages(folder):
        install_package(folder, "acme", source, {kind: f"acme:{name}" for kind, name in entry_points.items()})
        yield importlib.import_module("acme")
