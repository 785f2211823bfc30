"""A file is opened only if it is a regular file and has not been replaced, and is replaced in one step."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from postroom.files.safe_files import get_inode, open_regular_file, replace_file
from postroom.message import FileSlice
from postroom.temporary_bodies import slice_body


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(path.parent)  # the path of a socket has at most 107 bytes
        try:
            listener.bind(path.name)
        finally:
            os.chdir(here)


SPECIAL: dict[str, Callable[[Path], None]] = {
    "symbolic link": lambda path: path.symlink_to("/etc/hostname"),
    "dangling link": lambda path: path.symlink_to("/nowhere"),
    "pipe": lambda path: os.mkfifo(path),
    "folder": lambda path: path.mkdir(),
    "socket": make_socket,
}


@pytest.mark.parametrize("kind", SPECIAL)
def test_only_a_regular_file_is_opened(tmp_path: Path, kind: str) -> None:
    SPECIAL[kind](tmp_path / "x")
    with pytest.raises(OSError, match="x"):
        open_regular_file(tmp_path / "x")


def test_a_replaced_file_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    inode = get_inode(path.stat())
    with open_regular_file(path, inode=inode) as file:
        assert file.read() == b"old"
    (tmp_path / "y").write_bytes(b"new")
    (tmp_path / "y").rename(path)
    with pytest.raises(OSError, match="replaced"):
        open_regular_file(path, inode=inode)


def test_a_body_and_its_slices_are_not_read_from_a_replaced_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"content")
    body = FileSlice(path=path, length=7, inode=get_inode(path.stat()))
    assert b"".join(slice_body(body, 3, 4).chunks()) == b"tent"
    path.rename(tmp_path / "y")
    path.symlink_to(tmp_path / "y")
    for one in (body, slice_body(body, 3, 4)):
        with pytest.raises(OSError, match="symbolic"):
            list(one.chunks())


def test_a_large_inode_number_fits_into_a_signed_integer() -> None:
    status = os.stat_result((0o100644, (1 << 64) - 2, 0, 1, 0, 0, 0, 0, 0, 0))
    assert get_inode(status) == -2


def test_a_file_is_replaced_with_its_mode_and_leaves_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "new folder" / "plan.json"
    for content in (b"one", b"two"):
        replace_file(target, content, mode=0o600)
        assert target.read_bytes() == content
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert list(target.parent.iterdir()) == [target]
