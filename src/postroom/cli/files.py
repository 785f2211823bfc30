"""Files that stand on a command line, as bodies of messages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from postroom.message import Body


def open_body(path: Path) -> Body:
    """The content of a file, which stays there. What has no size before it is read (a pipe, a device) is read."""
    from postroom.message import Bytes, FileSlice

    if path.is_file():
        return FileSlice(path=path, length=path.stat().st_size)
    return Bytes(path.read_bytes())
