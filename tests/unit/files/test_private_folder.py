"""Folders that other accounts cannot enter."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from postroom.errors import Unavailable
from postroom.files import private_folder as module
from postroom.files.private_folder import private_folder, remove_private_folder


@pytest.fixture(autouse=True)
def _use_temporary_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PARENT", tmp_path)


def test_a_private_folder_is_closed_to_others_and_created_once(tmp_path: Path) -> None:
    folder = private_folder("sockets")
    assert folder == tmp_path / f"postroom-{os.geteuid()}" / "sockets"
    assert folder.stat().st_mode & 0o777 == folder.parent.stat().st_mode & 0o777 == 0o700
    assert private_folder("sockets") == folder


def test_removing_the_last_folder_removes_the_parent(tmp_path: Path) -> None:
    first, second = private_folder("first"), private_folder("second")
    remove_private_folder(first)
    assert second.exists()
    remove_private_folder(second)
    assert not any(tmp_path.iterdir())


def test_a_folder_in_use_is_not_removed() -> None:
    folder = private_folder("sockets")
    (folder / "socket").touch()
    remove_private_folder(folder)
    assert folder.exists()


def test_a_folder_that_others_can_enter_is_rejected() -> None:
    private_folder("sockets").chmod(0o755)
    with pytest.raises(Unavailable, match="cannot be used"):
        private_folder("sockets")


def test_a_symbolic_link_in_place_of_the_folder_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / f"postroom-{os.geteuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Unavailable, match="cannot be used"):
        private_folder("sockets")
