"""A line of SQL is as long as a line of Python at most."""

from __future__ import annotations

from pathlib import Path

import postroom

SOURCES = Path(postroom.__file__).parent
REPOSITORY = Path(__file__).parents[2]
MAX_LENGTH = 120


def test_no_line_of_sql_is_longer_than_120_characters() -> None:
    folders = [SOURCES, REPOSITORY / "tests", REPOSITORY / "bench"]
    long_lines = [
        f"{path}:{number}"
        for folder in folders
        for path in sorted(folder.rglob("*.sql"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if len(line) > MAX_LENGTH
    ]
    assert long_lines == []
