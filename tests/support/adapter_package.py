"""A package with adapters, as it is after its installation: a module, and metadata with entry points."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def install_package(folder: Path, name: str, source: str, entry_points: Mapping[str, str]) -> None:
    """Write a package with one module of its name into a folder that is in ``sys.path``."""
    (folder / f"{name}.py").write_text(source, encoding="utf-8")
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    lines = ["[postroom.adapters]", *(f"{kind} = {target}" for kind, target in entry_points.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
