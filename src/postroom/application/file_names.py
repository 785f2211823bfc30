"""Send ports that write into one folder: each has to know its own files, by their names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from os.path import normpath
from pathlib import Path

from postroom.adapters.file.definition import File
from postroom.adapters.file.names import may_coincide
from postroom.application.definition import ApplicationDefinition, SendPortDefinition
from postroom.errors import Problem


def file_name_problems(
    new: ApplicationDefinition, others: Iterable[ApplicationDefinition], home: Path
) -> Iterator[Problem]:
    """Ports of an application whose files could be taken for those of another port, here or deployed.

    A port that finds a file of its message's name with its content has sent it already. If that was another port's, its
    own would never be written."""
    known = [pair for other in others if other.name != new.name for pair in _writers(other)]
    for port, file in _writers(new):
        for other, theirs in known:
            if normpath(file.folder(home)) == normpath(theirs.folder(home)) and may_coincide(
                file.name, port.name, theirs.name, other.name
            ):
                yield Problem(
                    f"send port {port.name!r}: send port {other.name!r} writes into the same folder {file.path!r} "
                    f"under the same names, so each would take files of the other for its own. Tell them apart: "
                    f"name={_with_port(file.name)!r}, or give each a folder.",
                    port.place.file,
                    port.place.line,
                )
        known.append((port, file))


def _writers(application: ApplicationDefinition) -> Iterator[tuple[SendPortDefinition, File]]:
    for port in application.send_ports:
        if isinstance(port.adapter, File):
            yield port, port.adapter


def _with_port(template: str) -> str:
    return template.replace("%MessageID%", "%MessageID%-%SendPort%", 1)
