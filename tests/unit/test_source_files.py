"""A source file contains one idea."""

from __future__ import annotations

from pathlib import Path

import postroom

SOURCES = Path(postroom.__file__).parent
MAX_LINES = 400


def test_no_source_file_is_longer_than_400_lines() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES.rglob("*.py")}
    assert {path.relative_to(SOURCES): lines for path, lines in lengths.items() if lines > MAX_LINES} == {}
