"""A second file system for tests: a real one if the machine has one, otherwise a simulation of its errors."""

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
    """Make ``os.link`` fail as if ``folder`` were on another file system. Without a patch, this is permanent."""
    link = os.link

    def refuse(source: Any, target: Any, **settings: Any) -> None:
        if Path(target).parent == folder and Path(source).parent != folder:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(source))
        link(source, target, **settings)

    (patched or pytest.MonkeyPatch()).setattr(os, "link", refuse)


@contextmanager
def folder_on_another_file_system(tmp_path: Path, patched: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder that no file of ``tmp_path`` can be linked into and that has another device number."""
    if _has_another_file_system(tmp_path):
        folder = Path(tempfile.mkdtemp(prefix="postroom-test-", dir=_MEMORY))
        try:
            yield folder
        finally:
            shutil.rmtree(folder)
    else:
        folder = tmp_path / "another file system"
        folder.mkdir()
        refuse_links_into(folder, patched)
        _change_device_of(folder, patched)
        yield folder


def _has_another_file_system(tmp_path: Path) -> bool:
    return os.access(_MEMORY, os.W_OK) and _MEMORY.stat().st_dev != tmp_path.stat().st_dev


def _change_device_of(folder: Path, patched: pytest.MonkeyPatch) -> None:
    """Make ``os.fstat`` report another device number for everything in ``folder``."""
    fstat = os.fstat

    def report(descriptor: int) -> os.stat_result:
        found = fstat(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if not path.is_relative_to(folder):
            return found
        return os.stat_result((*found[:2], found.st_dev + 1, *found[3:10]))

    patched.setattr(os, "fstat", report)
