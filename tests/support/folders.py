"""Temporary folders that a system account can enter."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def open_folder() -> Iterator[Path]:
    """A short temporary folder. Not pytest's, which only its owner may enter: as root, PostgreSQL is somebody else."""
    folder = Path(tempfile.mkdtemp(prefix="postroom-test-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
