"""The definition of the File adapter, for receive locations and send ports."""

from __future__ import annotations

import os
import re
from fnmatch import translate
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from postroom.adapters.contract import ReceivedBy, ReceiveDefinition, SendAdapter, SendDefinition
from postroom.adapters.file.names import DEFAULT_NAME, MACRO, find_template_problems, split_path
from postroom.clock import Clock, system_clock
from postroom.stored_definitions import OptionalPath, TextPath

#: The folder in the watched folder where receive locations store claimed files.
PRIVATE_FOLDER = ".postroom"

_MAX_SETTLE = 3600.0


class File(ReceiveDefinition, SendDefinition):
    """Files in a folder: ``adapters.File("in", pattern="*.json")``, ``adapters.File("out/europe")``.

    A relative path is resolved against the home folder.

    Receiving: a file whose name matches ``pattern`` is received once its size and time have not changed for ``settle``
    seconds. It is moved to ``archive`` (or deleted) when its messages are published or suspended. Hidden files are
    ignored. With ``order`` files are received one after the other, by ``name`` or by the ``time`` of their last change.
    A file that has not settled delays the files after it. Claimed files are stored in ``.postroom`` in the watched
    folder, or in ``private_folder`` on the same file system. A folder where other accounts could replace claimed files
    is rejected, unless ``trusted_senders`` is set.

    Sending: ``name`` is a template for the file name, with macros (see names.py). It may also be the last part of the
    path: ``adapters.File("out/%MessageID%.xml")``. ``mode`` decides about an existing file with this name: ``create``
    keeps it and fails the attempt, ``overwrite`` replaces it.
    """

    transport_type: ClassVar[str] = "FILE"
    received_by: ClassVar[ReceivedBy] = ReceivedBy.PIPELINE
    can_be_isolated: ClassVar[bool] = False
    max_batch: ClassVar[int] = 20

    kind: Literal["file"] = "file"
    path: TextPath = Field(kw_only=False)
    pattern: str = "*"
    settle: float = 1.0
    archive: OptionalPath = Field(default=None, validate_default=True)
    private_folder: OptionalPath = Field(default=None, validate_default=True)
    trusted_senders: bool = False
    order: Literal["name", "time"] | None = None
    name: str = DEFAULT_NAME
    mode: Literal["create", "overwrite"] = "create"

    @model_validator(mode="before")
    @classmethod
    def _split_path(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Take the name of the file from the path if it is the last part of it."""
        path = given.get("path")
        if given.get("name") is not None or not isinstance(path, str | os.PathLike):
            return given
        folder, name = split_path(os.fspath(path))
        return {**given, "path": folder, "name": name}

    def problems(self) -> list[str]:
        found = [
            *find_path_problems("path", self.path),
            *_find_macro_problems(self.path),
            *_find_pattern_problems(self.pattern),
            *find_template_problems(self.name),
        ]
        if self.archive is not None:
            found += find_path_problems("archive", self.archive)
            if os.path.normpath(self.archive) == os.path.normpath(self.path):
                found.append(f"archive {self.archive!r} is the watched folder: its files would be received again.")
        if self.private_folder is not None:
            found += find_path_problems("private_folder", self.private_folder)
            if PurePath(os.path.normpath(self.private_folder)).is_relative_to(os.path.normpath(self.path)):
                found.append(
                    f"private_folder {self.private_folder!r} is inside the watched folder, but must be outside."
                )
        if not 0 <= self.settle <= _MAX_SETTLE:
            found.append(f"settle is {self.settle:g} seconds, but must be between 0 and {_MAX_SETTLE:g}.")
        return found

    def receive_problems(self) -> list[str]:
        found = []
        if self.name != DEFAULT_NAME:
            found.append(f"name {self.name!r} is for send ports; a receive location has a folder and a pattern.")
        path = PurePath(self.path)
        if set("*?") & set(path.name):
            folder, pattern = str(path.parent), path.name
            found.append(f"path {self.path!r} ends with a pattern; write the folder {folder!r}, and {pattern=}.")
        return found

    def address(self, home: Path) -> str:
        return self.folder(home).as_uri()

    def folder(self, home: Path) -> Path:
        """Return the absolute path of the folder."""
        return (home / self.path).absolute()

    def archive_folder(self, home: Path) -> Path | None:
        return None if self.archive is None else (home / self.archive).absolute()

    @property
    def is_ordered(self) -> bool:
        return self.order is not None

    def make_sender(self, home: Path, *, clock: Clock = system_clock) -> SendAdapter:
        # Import the dependencies of this adapter only when it is used.
        from postroom.adapters.file.send import FileSender

        return FileSender(self, home=home, clock=clock)

    def private_parent(self, home: Path) -> Path:
        """Return the absolute path of the folder that contains the private folders of receive locations."""
        if self.private_folder is None:
            return self.folder(home) / PRIVATE_FOLDER
        return (home / self.private_folder).absolute()

    def matches(self, file_name: str) -> bool:
        """Return True if a receive location receives a file with this name. Case-sensitive."""
        return not file_name.startswith(".") and self._expression.match(file_name) is not None

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        return re.compile(translate(self.pattern))


def find_path_problems(what: str, path: str) -> list[str]:
    """Return the problems of a folder's path, one sentence each."""
    if not path.strip():
        return [f"{what} is empty."]
    if "\0" in path:
        return [f"{what} {path!r} contains a NUL character."]
    return []


def _find_macro_problems(path: str) -> list[str]:
    if (macro := MACRO.search(path)) is None:
        return []
    return [f"path {path!r} contains {macro.group()} in the name of a folder; only the file name can contain macros."]


def _find_pattern_problems(pattern: str) -> list[str]:
    if not pattern:
        return ["pattern is empty; '*' matches every file."]
    if any(character in pattern for character in "/\\\0"):
        return [f"pattern {pattern!r} contains a separator or a NUL; it is matched with names, not with paths."]
    if pattern.startswith("."):
        return [f"pattern {pattern!r} can match only hidden files, which are never received."]
    if _has_open_bracket(pattern):
        return [f"pattern {pattern!r} has a '[' without a ']'; write '[[]' for the character '['."]
    return []


def _has_open_bracket(pattern: str) -> bool:
    # A ']' that comes first in a character class, even after '!', is a literal character.
    return "[" in re.sub(r"\[!?+\]?+[^\]]*+\]", "", pattern)
