"""Receive locations that watch one folder: a file is for one of them, and it must be clear for which."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from os.path import normpath
from pathlib import Path

from postroom.adapters.file.definition import File
from postroom.adapters.file.patterns import may_meet
from postroom.application.definition import ApplicationDefinition, ReceiveLocationDefinition
from postroom.errors import Problem


def watched_folder_problems(
    new: ApplicationDefinition, others: Iterable[ApplicationDefinition], home: Path
) -> Iterator[Problem]:
    """Locations of an application that would take the files of another one, here or deployed: which one gets a file
    would be chance. And archives that are watched: what is archived there would come in again."""
    known = [pair for other in others if other.name != new.name for pair in _watching(other)]
    mine = list(_watching(new))
    for position, (location, file) in enumerate(mine):
        for other, theirs in [*known, *mine[:position]]:
            if _folder(file, home) == _folder(theirs, home) and may_meet(file.pattern, theirs.pattern):
                text = (
                    f"receive location {location.name!r}: {other.name!r} watches the same folder {file.path!r} for "
                    f"names that may be the same ({theirs.pattern!r} and {file.pattern!r}), so that it would be chance "
                    "which of them takes a file. Give each a folder or a pattern of its own."
                )
                yield Problem(text, location.place.file, location.place.line)
        for other, theirs in [*known, *mine]:
            archive = file.archive_folder(home)
            if archive is not None and location is not other and normpath(archive) == _folder(theirs, home):
                text = (
                    f"receive location {location.name!r}: its archive {file.archive!r} is the folder that "
                    f"{other.name!r} watches, so that what is archived would come in again. Archive elsewhere."
                )
                yield Problem(text, location.place.file, location.place.line)


def _watching(application: ApplicationDefinition) -> Iterator[tuple[ReceiveLocationDefinition, File]]:
    for port in application.receive_ports:
        for location in port.locations:
            if (folder := location.adapter.watched_folder) is not None:
                yield location, folder


def _folder(file: File, home: Path) -> str:
    return normpath(file.folder(home))
