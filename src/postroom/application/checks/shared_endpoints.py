"""Endpoints that cannot be deployed: two of them use one folder, table or HTTP port, or a folder is open to others.

Each endpoint of an application is compared with the deployed endpoints, and with the endpoints declared before it. A
deployed application of the same name is replaced, so it is not compared.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from os.path import normpath
from pathlib import Path
from typing import TypeVar

from postroom.adapters import File, HttpReceive, SparkTable
from postroom.adapters.file.names import can_coincide, can_match_same_name
from postroom.adapters.file.permissions import is_protected
from postroom.application.definition import ApplicationDefinition, ReceiveLocationDefinition, SendPortDefinition
from postroom.errors import Problem

_T = TypeVar("_T")


def shared_endpoint_problems(
    new: ApplicationDefinition, deployed: Sequence[ApplicationDefinition], home: Path
) -> Iterator[Problem]:
    """Yield the problems that prevent a deployment of ``new``. Relative paths are resolved against ``home``."""
    others = [other for other in deployed if other.name != new.name]
    yield from _http_port_problems(new, others)
    yield from _file_name_problems(new, others, home)
    yield from _watched_folder_problems(new, others, home)
    yield from _archive_problems(new, others, home)
    yield from _unprotected_folder_problems(new, home)
    yield from _table_problems(new, others)


def _find_pairs(
    endpoints: Callable[[ApplicationDefinition], Iterator[tuple[Hashable, _T]]],
    new: ApplicationDefinition,
    others: Sequence[ApplicationDefinition],
) -> Iterator[tuple[_T, _T]]:
    """Yield each endpoint of ``new`` with each endpoint before it that has the same key."""
    known: defaultdict[Hashable, list[_T]] = defaultdict(list)
    for other in others:
        for key, endpoint in endpoints(other):
            known[key].append(endpoint)
    for key, endpoint in endpoints(new):
        yield from ((endpoint, other) for other in known[key])
        known[key].append(endpoint)


def _list_locations(application: ApplicationDefinition) -> Iterator[ReceiveLocationDefinition]:
    return (location for port in application.receive_ports for location in port.locations)


# -- receiving -----------------------------------------------------------------------------------------------------


def _http_port_problems(new: ApplicationDefinition, others: Sequence[ApplicationDefinition]) -> Iterator[Problem]:
    """Yield conflicts of HTTP ports: a port has one host, one set of TLS files, and each path once."""

    def endpoints(
        application: ApplicationDefinition,
    ) -> Iterator[tuple[Hashable, tuple[ReceiveLocationDefinition, HttpReceive]]]:
        for location in _list_locations(application):
            if isinstance(adapter := location.adapter, HttpReceive):
                yield (adapter.listen, adapter.port), (location, adapter)

    for (location, ours), (other, theirs) in _find_pairs(endpoints, new, others):
        if location.host.lower() != other.host.lower():
            text = f"port {ours.port} belongs to the host {other.host!r}"
        elif (ours.certificate, ours.key) != (theirs.certificate, theirs.key):
            text = f"port {ours.port} has another certificate"
        elif (ours.client_ca, ours.client_certificate) != (theirs.client_ca, theirs.client_certificate):
            text = f"port {ours.port} accepts other client certificates"
        elif ours.path == theirs.path:
            text = f"the path {ours.path} of port {ours.port} is taken"
        else:
            continue
        yield location.position.problem(f"location {location.name!r}: {text} (location {other.name!r}).")


def _list_watched_folders(application: ApplicationDefinition) -> Iterator[tuple[ReceiveLocationDefinition, File]]:
    for location in _list_locations(application):
        if (folder := location.watched_folder) is not None:
            yield location, folder


def _watched_folder_problems(
    new: ApplicationDefinition, others: Sequence[ApplicationDefinition], home: Path
) -> Iterator[Problem]:
    """Yield folders that two locations watch: either location could receive a file."""

    def endpoints(
        application: ApplicationDefinition,
    ) -> Iterator[tuple[Hashable, tuple[ReceiveLocationDefinition, File]]]:
        return ((_folder(file, home), (location, file)) for location, file in _list_watched_folders(application))

    for (location, file), (other, theirs) in _find_pairs(endpoints, new, others):
        if can_match_same_name(file.pattern, theirs.pattern):
            yield location.position.problem(
                f"receive location {location.name!r}: {other.name!r} watches the same folder {file.path!r} for "
                f"names that may be the same ({theirs.pattern!r} and {file.pattern!r}), so either of them could "
                "receive a file. Give each its own folder or pattern."
            )


def _archive_problems(
    new: ApplicationDefinition, others: Sequence[ApplicationDefinition], home: Path
) -> Iterator[Problem]:
    """Yield archives that a location watches: archived files would be received again."""
    watching: defaultdict[str, list[ReceiveLocationDefinition]] = defaultdict(list)
    for application in (*others, new):
        for location, file in _list_watched_folders(application):
            watching[_folder(file, home)].append(location)
    for location, file in _list_watched_folders(new):
        archive = file.archive_folder(home)
        for other in () if archive is None else watching[normpath(archive)]:
            if location is not other:
                yield location.position.problem(
                    f"receive location {location.name!r}: its archive {file.archive!r} is the folder that "
                    f"{other.name!r} watches, so archived files would be received again. Use another archive folder."
                )


def _unprotected_folder_problems(new: ApplicationDefinition, home: Path) -> Iterator[Problem]:
    """Yield folders where other accounts could replace claimed files. The owner is not compared: the pipeline may run
    under another account than this command."""
    for location, file in _list_watched_folders(new):
        if file.trusted_senders or file.private_folder is not None:
            continue
        with suppress(OSError):
            if not is_protected(file.folder(home), any_owner=True):
                yield location.position.problem(
                    f"receive location {location.name!r}: other accounts can write to the watched folder "
                    f"{file.path!r}, and could make Postroom read any file of its account. Set the sticky bit of the "
                    "folder (chmod +t), set private_folder= to a folder that only Postroom's account can write to, or "
                    "set trusted_senders=True."
                )


# -- sending -------------------------------------------------------------------------------------------------------


def _file_name_problems(
    new: ApplicationDefinition, others: Sequence[ApplicationDefinition], home: Path
) -> Iterator[Problem]:
    """Yield send ports that may write the same file.

    A port that finds a file with the name and the content of its message counts it as sent. If another port has written
    that file, one file is missing."""

    def endpoints(application: ApplicationDefinition) -> Iterator[tuple[Hashable, tuple[SendPortDefinition, File]]]:
        for port in application.send_ports:
            for adapter in (port.adapter, port.backup and port.backup.adapter):
                if isinstance(adapter, File):
                    yield _folder(adapter, home), (port, adapter)

    for (port, file), (other, theirs) in _find_pairs(endpoints, new, others):
        if port is not other and can_coincide(file.name, port.name, theirs.name, other.name):
            distinct = file.name.replace("%MessageID%", "%MessageID%-%SendPort%", 1)
            yield port.position.problem(
                f"send port {port.name!r}: send port {other.name!r} writes into the same folder {file.path!r} "
                f"under the same names, so a port could consider a file of the other port its own. Use different names "
                f"(name={distinct!r}) or different folders."
            )


def _table_problems(new: ApplicationDefinition, others: Sequence[ApplicationDefinition]) -> Iterator[Problem]:
    """Yield tables that two sinks write. A table has one row for each message, so a message that reaches both sinks
    would get only one row."""

    def endpoints(
        application: ApplicationDefinition,
    ) -> Iterator[tuple[Hashable, tuple[SendPortDefinition, SparkTable]]]:
        for port in application.send_ports:
            if isinstance(port.adapter, SparkTable):
                yield _table(port.adapter), (port, port.adapter)

    for (port, _), (other, theirs) in _find_pairs(endpoints, new, others):
        yield port.position.problem(
            f"send port {port.name!r}: {other.name!r} writes into the same table {theirs.table!r}, which has "
            "one row for each message, so a message that both ports receive would be written only once. Use "
            "one port with both filters and the maps of both, or a table for each."
        )


def _table(table: SparkTable) -> tuple[str, str]:
    """Return the identity of a table, without the login. Other differences in spelling count as another table."""
    if table.is_jdbc:
        return table.url.casefold(), table.table.casefold()
    return re.sub(r"^postgres(ql)?://([^/?#]*@)?", "", table.url), table.table.removeprefix("public.")


def _folder(file: File, home: Path) -> str:
    return normpath(file.folder(home))
