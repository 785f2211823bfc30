"""Temporary folders that a system account can enter."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: A file system in memory, if the machine has one. Cloning a database there takes a tenth of the time.
_MEMORY = Path("/dev/shm")
_ENOUGH_BYTES = 4 << 30


@contextmanager
def open_folder(*, in_memory: bool = False) -> Iterator[Path]:
    """Yield a temporary folder with a short path that every account can enter.

    Only the owner can enter the folders of pytest. If the tests run as root, PostgreSQL runs with another account.
    """
    parent = _MEMORY if in_memory and _has_capacity(_MEMORY) else None
    folder = Path(tempfile.mkdtemp(prefix="postroom-test-", dir=parent))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _has_capacity(folder: Path) -> bool:
    return os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > _ENOUGH_BYTES
