"""The user of the operating system who runs this process."""

from __future__ import annotations

import getpass


def get_os_user() -> str | None:
    """Return the user of this process, or None if the account has no name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return None
