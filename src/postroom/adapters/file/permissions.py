"""Checks which accounts can replace the files in a folder: owner, mode and access control list."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

_ROOT = 0
_ACCESS_LIST = "system.posix_acl_access"


def is_protected(folder: int | Path, *, any_owner: bool = False) -> bool:
    """Return True if no other account can rename or replace the entries of this account in a folder.

    Only this account (or root) can write to a protected folder, or it is sticky and belongs to one of them.
    ``any_owner`` skips the check of the owner, for a caller that runs under another account.
    """
    status = os.fstat(folder) if isinstance(folder, int) else folder.stat()
    if not any_owner and status.st_uid not in (os.geteuid(), _ROOT):
        return False
    return bool(status.st_mode & stat.S_ISVTX) or not _others_can_write(folder, status)


def is_private(folder: int) -> bool:
    """Return True if a folder belongs to this account, and no other account except root can write to it."""
    status = os.fstat(folder)
    return status.st_uid == os.geteuid() and not _others_can_write(folder, status)


def _others_can_write(folder: int | Path, status: os.stat_result) -> bool:
    if status.st_mode & stat.S_IWOTH:
        return True
    # The group's bits are also the mask of an access control list.
    if not status.st_mode & stat.S_IWGRP:
        return False
    return _has_access_list(folder) or not _is_group_of_one(status.st_gid, os.geteuid())


def _is_group_of_one(gid: int, uid: int) -> bool:
    """Return True if the account is the only member of its private group, which most Linux distributions create."""
    try:
        account, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return False
    return account.pw_gid == gid and group.gr_name == account.pw_name and not set(group.gr_mem) - {account.pw_name}


def _has_access_list(folder: int | Path) -> bool:
    try:
        return bool(os.getxattr(folder, _ACCESS_LIST))
    except (OSError, AttributeError):  # the folder has none, or the system does not support them
        return False
