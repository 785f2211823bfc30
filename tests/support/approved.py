"""Approved snapshots: text files with the interfaces that users and programs rely on.

A test compares the current text with the approved file next to it. ``pytest --approve`` writes the file again. The diff
of the file then shows the changes for users.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

#: Compare a text with the approved file of this name.
AssertApproved = Callable[[str, str], None]


def assert_approved(text: str, approved: Path, *, approve: bool) -> None:
    """Fail with a diff if ``text`` differs from the file ``approved``. With ``approve``, write the file instead."""
    if approve:
        approved.parent.mkdir(exist_ok=True)
        approved.write_text(text, encoding="utf-8")
        return
    before = approved.read_text(encoding="utf-8") if approved.exists() else ""
    if text != before:
        lines = difflib.unified_diff(before.splitlines(), text.splitlines(), "approved", "now", lineterm="", n=2)
        raise AssertionError(
            "\n".join([f"{approved.name} differs. If the change is intended: pytest --approve", *lines])
        )
