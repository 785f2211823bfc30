"""Open files that are given on the command line as message bodies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from postroom.message import Body


def open_body(path: Path) -> Body:
    """Return a body that reads the file on demand. A pipe or a device has no size, so it is read at once."""
    from postroom.message import Bytes, FileSlice

    if path.is_file():
        return FileSlice(path=path, length=path.stat().st_size)
    return Bytes(path.read_bytes())
