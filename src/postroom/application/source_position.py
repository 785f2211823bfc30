"""The position in a user's file where something was declared."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from postroom.errors import Problem


@dataclass(frozen=True)
class SourcePosition:
    """A file and a line.

    It is not part of a definition: all positions are equal, so definitions that differ only in it are equal.
    """

    file: str = field(default="", compare=False)
    line: int = field(default=0, compare=False)

    def problem(self, text: str) -> Problem:
        """Return a problem at this position."""
        return Problem(text, self.file, self.line)

    @property
    def folder(self) -> Path:
        """The folder of the file. Relative paths in the file are resolved against it."""
        return Path(self.file).resolve().parent


def get_caller_position() -> SourcePosition:
    """Return the position of the innermost caller outside Postroom."""
    frame = sys._getframe(1)
    while frame.f_back is not None and is_postroom_module(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return SourcePosition(frame.f_code.co_filename, frame.f_lineno)


def is_postroom_module(module: str) -> bool:
    return module.partition(".")[0] == __name__.partition(".")[0]
