"""Approved snapshots: what users and programs rely on, as text files that a reviewer can read.

A test compares the text of today with the approved file beside it. ``pytest --approve`` writes the file again; the diff
of that file then shows what changes for users.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

#: Compare a text with the approved file of this name.
AssertApproved = Callable[[str, str], None]


def assert_approved(text: str, approved: Path, *, approve: bool) -> None:
    """Fail with a diff unless ``text`` is what ``approved`` holds; with ``approve``, write it there instead."""
    if approve:
        approved.parent.mkdir(exist_ok=True)
        approved.write_text(text, encoding="utf-8")
        return
    before = approved.read_text(encoding="utf-8") if approved.exists() else ""
    if text != before:
        lines = difflib.unified_diff(before.splitlines(), text.splitlines(), "approved", "now", lineterm="", n=2)
        raise AssertionError("\n".join([f"{approved.name} differs. If that is meant: pytest --approve", *lines]))
