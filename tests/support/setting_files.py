"""Lists the source files that name a setting: ``python -m tests.support.setting_files stop_on_failure``.

A setting of a send port is in its signature, in its definition and where it is used. Every other file is a copy of the
same knowledge.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src" / "postroom"


def find_setting_files(setting: str) -> list[Path]:
    """Return the Python and SQL files that contain the name of a setting, by path."""
    name = re.compile(rf"\b{re.escape(setting)}\b")
    files = (path for path in SOURCES.rglob("*") if path.suffix in (".py", ".sql"))
    return sorted(path.relative_to(SOURCES) for path in files if name.search(path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    found = find_setting_files(sys.argv[1])
    sys.stdout.writelines(f"{line}\n" for line in (*found, f"{len(found)} files"))
