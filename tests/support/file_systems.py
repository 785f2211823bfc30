"""A second file system for tests: a real one where the machine has one, otherwise the error of the kernel."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_MEMORY = Path("/dev/shm")


def refuse_links_into(folder: Path, patched: pytest.MonkeyPatch | None = None) -> None:
    """Make ``os.link`` fail as if ``folder`` were on a file system of its own; without a patch, for good."""
    link = os.link

    def refuse(source: Any, target: Any, **settings: Any) -> None:
        if Path(target).parent == folder and Path(source).parent != folder:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(source))
        link(source, target, **settings)

    (patched or pytest.MonkeyPatch()).setattr(os, "link", refuse)


@contextmanager
def another_file_system(tmp_path: Path) -> Iterator[Path]:
    """A folder on a real file system that is not that of ``tmp_path``; skips the test if this machine has none."""
    if not _has_another_file_system(tmp_path):
        pytest.skip("this machine has no second file system that everybody can write to")
    folder = Path(tempfile.mkdtemp(prefix="postroom-test-", dir=_MEMORY))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _has_another_file_system(tmp_path: Path) -> bool:
    return os.access(_MEMORY, os.W_OK) and _MEMORY.stat().st_dev != tmp_path.stat().st_dev


@contextmanager
def folder_on_another_file_system(tmp_path: Path, patched: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that no file of ``tmp_path`` can be linked into."""
    if _has_another_file_system(tmp_path):
        with another_file_system(tmp_path) as folder:
            yield folder
    else:
        folder = tmp_path / "another file system"
        folder.mkdir()
        refuse_links_into(folder, patched)
        yield folder
