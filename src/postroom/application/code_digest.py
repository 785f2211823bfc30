"""The digest of the code of an application."""

from __future__ import annotations

from pathlib import Path

from postroom.pipelines.shipping.imported_files import find_imported_files
from postroom.pipelines.shipping.shipped_files import ShippedFiles


def digest_code(file: Path) -> str:
    """Return a digest of a file and of the files that it imports from its folder. Raise OSError if it cannot be
    read."""
    names = find_imported_files(file.parent, file.name)
    return ShippedFiles({name: (file.parent / name).read_bytes() for name in names}).digest[:16]
