"""Where in a user's files something was declared."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from postroom.errors import Problem


@dataclass(frozen=True)
class Place:
    """A file and a line. It says where something was declared and is no part of what was declared: two definitions
    that differ in it only are equal, so any two places are."""

    file: str = field(default="", compare=False)
    line: int = field(default=0, compare=False)

    def problem(self, text: str) -> Problem:
        """Return a problem at this place."""
        return Problem(text, self.file, self.line)

    @property
    def folder(self) -> Path:
        """What relative paths in the file mean."""
        return Path(self.file).resolve().parent


def here() -> Place:
    """The place outside of this package that the present call came from."""
    frame = sys._getframe(1)
    while frame.f_back is not None and is_ours(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return Place(frame.f_code.co_filename, frame.f_lineno)


def is_ours(module: str) -> bool:
    return module.partition(".")[0] == __name__.partition(".")[0]
