"""The File adapter as a user declares it, on either side."""

from __future__ import annotations

import os
import re
from fnmatch import translate
from functools import cached_property
from pathlib import Path, PurePath
from typing import ClassVar, Literal

from postroom.adapters.contract import SendAdapter
from postroom.adapters.definition import AdapterDefinition
from postroom.adapters.file.names import DEFAULT_NAME, template_problems
from postroom.clock import Clock, system_clock

#: Where receive locations keep the files that they have claimed, in the watched folder.
PRIVATE_FOLDER = ".postroom"

_LONGEST_SETTLE = 3600.0


class File(AdapterDefinition):
    """Files in a folder: ``adapters.File("in", pattern="*.json")``, ``adapters.File("out/europe")``.

    A relative path is taken from the home folder.

    Receiving: files whose names match ``pattern`` are taken once their size and time have not changed for ``settle``
    seconds, and are moved to ``archive`` (or deleted) when their messages are committed. Hidden files are never taken.
    With ``order`` they come in one after the other, by ``name`` or by the ``time`` at which they were last written; one
    that has not settled holds up those after it. Claimed files are in ``.postroom`` in the watched folder, or in
    ``private_folder`` on the same file system. A folder where other accounts could replace claimed files is refused,
    unless ``trusted_senders`` is set.

    Sending: ``name`` says what the file is called, with macros (see names.py), and ``mode`` what happens to a file that
    has that name already: ``create`` keeps it and fails the attempt, ``overwrite`` replaces it.
    """

    transport_type: ClassVar[str] = "FILE"

    kind: Literal["file"] = "file"
    path: str
    pattern: str
    settle: float
    archive: str | None
    private_folder: str | None
    trusted_senders: bool
    order: Literal["name", "time"] | None
    name: str
    mode: Literal["create", "overwrite"]

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        pattern: str = "*",
        settle: float = 1.0,
        archive: str | os.PathLike[str] | None = None,
        private_folder: str | os.PathLike[str] | None = None,
        trusted_senders: bool = False,
        order: Literal["name", "time"] | None = None,
        name: str = DEFAULT_NAME,
        mode: Literal["create", "overwrite"] = "create",
        kind: Literal["file"] = "file",
    ) -> None:
        super().__init__(
            path=_text(path),
            pattern=pattern,
            settle=settle,
            archive=_text(archive),
            private_folder=_text(private_folder),
            trusted_senders=trusted_senders,
            order=order,
            name=name,
            mode=mode,
            kind=kind,
        )

    def problems(self) -> list[str]:
        found = [
            *path_problems("path", self.path),
            *_pattern_problems(self.pattern),
            *template_problems(self.name),
        ]
        if self.archive is not None:
            found += path_problems("archive", self.archive)
            if os.path.normpath(self.archive) == os.path.normpath(self.path):
                found.append(f"archive {self.archive!r} is the watched folder itself: its files would come in again.")
        if self.private_folder is not None:
            found += path_problems("private_folder", self.private_folder)
            if PurePath(os.path.normpath(self.private_folder)).is_relative_to(os.path.normpath(self.path)):
                found.append(
                    f"private_folder {self.private_folder!r} is inside the watched folder; it has to be outside."
                )
        if not 0 <= self.settle <= _LONGEST_SETTLE:
            found.append(f"settle is {self.settle:g} seconds, but must be between 0 and {_LONGEST_SETTLE:g}.")
        return found

    def address(self, home: Path) -> str:
        return self.folder(home).as_uri()

    def folder(self, home: Path) -> Path:
        """The folder itself, absolute."""
        return (home / self.path).absolute()

    def archive_folder(self, home: Path) -> Path | None:
        return None if self.archive is None else (home / self.archive).absolute()

    @property
    def watched_folder(self) -> File:
        return self

    @property
    def is_ordered(self) -> bool:
        return self.order is not None

    def make_sender(self, home: Path, *, clock: Clock = system_clock) -> SendAdapter:
        # What only this adapter needs is imported only for it.
        from postroom.adapters.file.send import FileSender

        return FileSender(self, home=home, clock=clock)

    def private_parent(self, home: Path) -> Path:
        """The folder that has the private folders of receive locations in it, absolute."""
        if self.private_folder is None:
            return self.folder(home) / PRIVATE_FOLDER
        return (home / self.private_folder).absolute()

    def takes(self, file_name: str) -> bool:
        """Whether a receive location picks up a file of this name; case matters."""
        return not file_name.startswith(".") and self._expression.match(file_name) is not None

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        return re.compile(translate(self.pattern))


def _text(path: str | os.PathLike[str] | None) -> str | None:
    return os.fspath(path) if isinstance(path, os.PathLike) else path


def path_problems(what: str, path: str) -> list[str]:
    """What is wrong with the path of a folder."""
    if not path.strip():
        return [f"{what} is empty."]
    if "\0" in path:
        return [f"{what} {path!r} contains a NUL character."]
    return []


def _pattern_problems(pattern: str) -> list[str]:
    if not pattern:
        return ["pattern is empty; '*' takes every file."]
    if any(character in pattern for character in "/\\\0"):
        return [f"pattern {pattern!r} has a separator or a NUL in it; it is matched with names, not with paths."]
    if pattern.startswith("."):
        return [f"pattern {pattern!r} can match hidden files only, and those are never taken."]
    if _has_open_bracket(pattern):
        return [f"pattern {pattern!r} has a '[' without its ']'; write '[[]' for the character itself."]
    return []


def _has_open_bracket(pattern: str) -> bool:
    # In a character class a ']' that comes first, also after '!', stands for itself.
    return "[" in re.sub(r"\[!?+\]?+[^\]]*+\]", "", pattern)
