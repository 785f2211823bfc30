"""Whether another account can replace what is in a folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from postroom.adapters.file import permissions
from postroom.adapters.file.permissions import is_protected


def test_a_folder_that_only_this_account_can_write_to_is_protected(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert is_protected(tmp_path)


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o702])
def test_a_folder_that_everybody_can_write_to_has_to_be_sticky(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    assert not is_protected(tmp_path)
    tmp_path.chmod(mode | 0o1000)
    assert is_protected(tmp_path)


def test_a_group_has_to_be_this_accounts_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o775)
    monkeypatch.setattr(permissions, "_is_group_of_one", lambda gid, uid: True)
    assert is_protected(tmp_path)
    monkeypatch.setattr(permissions, "_is_group_of_one", lambda gid, uid: False)
    assert not is_protected(tmp_path)


def test_an_access_control_list_may_name_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o775)
    monkeypatch.setattr(permissions, "_is_group_of_one", lambda gid, uid: True)
    monkeypatch.setattr(os, "getxattr", lambda *_: b"a list", raising=False)
    assert not is_protected(tmp_path)


@pytest.mark.parametrize("mode", [0o755, 0o1777])
def test_the_owner_of_a_folder_can_replace_what_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    tmp_path.chmod(mode)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    monkeypatch.setattr(permissions, "_ROOT", -1)
    assert not is_protected(tmp_path)
    assert is_protected(tmp_path, any_owner=True)


def test_a_group_without_a_name_is_not_this_accounts_alone() -> None:
    assert not permissions._is_group_of_one((1 << 31) - 7, os.geteuid())
