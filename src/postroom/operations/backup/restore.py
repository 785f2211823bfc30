"""Restore a backup into an empty database.

Files are restored first, then the database in one transaction, which also points the claims to their files. A restore
that is interrupted before the commit can be repeated. After the commit only the rights and the URIs in the new home
folder are missing. ``postroom apply`` sets them, too.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from postroom.errors import DefinitionError, StateError, format_count
from postroom.files.safe_files import get_inode
from postroom.messagebox.audit import record_action, set_reason
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.coordination.running_processes import find_running_copies
from postroom.messagebox.maintenance.backup import (
    AFTER_RESTORE,
    STOP_ALL_HOSTS,
    RoleMembers,
    analyze,
    build_claim_update,
    count_tables,
    create_roles,
    store_location_uri,
    store_port_uris,
)
from postroom.messagebox.migrate import migrate
from postroom.operations.backup.manifest import DUMP, Manifest, Report, SavedFile, SavedRole
from postroom.operations.backup.programs import restore_database
from postroom.operations.backup.saved_files import restore_file
from postroom.ports.receive_locations import read_receive_locations
from postroom.ports.send_ports import read_send_ports


@dataclass(frozen=True, kw_only=True)
class RestoreReport:
    """A finished restore. ``missing_logins`` had roles of the MessageBox and do not exist on this server."""

    created_at: datetime
    applications: tuple[str, ...]
    claimed_files: int
    stream_files: int
    archived_files: int
    included_files: int
    skipped_files: tuple[str, ...]
    """Archived and included files that exist already and were not replaced."""
    missing_logins: tuple[str, ...]


def restore_backup(
    url: str,
    home: Path,
    folder: Path,
    manifest: Manifest,
    *,
    stopped: bool = False,
    reason: str | None = None,
    report: Report = lambda _: None,
) -> RestoreReport:
    """Restore a verified backup into the empty database at ``url`` and the home folder ``home``. The audit of the
    restored MessageBox gets an entry with the ``reason``.

    With ``stopped`` all hosts are stopped, for a copy beside its original. Otherwise raise StateError if processes of
    the original run on the same server: both would receive the same files and send the same messages."""
    home = home.absolute()
    with connect(url, application_name="postroom restore") as connection:
        _check_empty(connection)
        if not stopped:
            _check_not_running(connection, manifest.roles)
        missing_logins = create_roles(
            connection, [RoleMembers(role.name, role.can_login, role.members) for role in manifest.roles]
        )
    report(f"Restoring {format_count(len(manifest.files), 'file')}")
    _rename_existing_streams([file for file in manifest.files if file.kind == "streams"], home)
    skipped = []
    updates = []
    for file in manifest.files:
        target = file.find_target(home)
        if file.kind in ("archives", "included") and os.path.lexists(target):
            skipped.append(str(target))
            continue
        restored = restore_file(folder, file, home, overwrite=file.kind == "streams")
        if file.kind == "claimed":
            updates.append(_update_claim(file, restored))
    report("Restoring the database")
    updates += [*AFTER_RESTORE, *([STOP_ALL_HOSTS] if stopped else [])]
    restore_database(url, folder / DUMP, "\n".join(updates))
    migrate(url)
    with connect(url, application_name="postroom restore") as connection:
        if reason is not None:
            set_reason(connection, reason)
        with connection.transaction():
            _move_uris(connection, home)
            after = {"created_at": str(manifest.created_at), "hosts": "stopped" if stopped else "as they were"}
            record_action(connection, "messagebox.restore", str(folder), after=after)
        analyze(connection)
    return RestoreReport(
        created_at=manifest.created_at,
        applications=manifest.applications,
        claimed_files=manifest.count("claimed"),
        stream_files=manifest.count("streams"),
        archived_files=manifest.count("archives"),
        included_files=manifest.count("included"),
        skipped_files=tuple(skipped),
        missing_logins=missing_logins,
    )


def _check_empty(connection: Connection) -> None:
    tables, messagebox_tables = count_tables(connection)
    if tables:
        what = "has a MessageBox" if messagebox_tables else f"has {tables} tables"
        raise StateError(
            f"The database is not empty: it {what}.",
            why="A restore never changes or deletes what is there.",
            hint="Create an empty database (createdb NAME) and give it with --database, or use another --home.",
        )


def _check_not_running(connection: Connection, roles: Sequence[SavedRole]) -> None:
    """Raise StateError if hosts of the same MessageBox run on another database of this server."""
    logins = [login for role in roles if role.can_login for login in (role.name, *role.members)]
    found = find_running_copies(connection, logins)
    if found:
        databases = ", ".join(map(repr, found))
        raise StateError(
            f"Hosts of this MessageBox run on this server, with the database {databases}.",
            why="The restored copy would receive the same files and send the same messages.",
            hint="Stop these hosts and pipelines first. Or restore a copy whose hosts are stopped: --stopped.",
        )


def _move_uris(connection: Connection, home: Path) -> None:
    """Store the URIs of ports and locations for the new home folder, as the next ``apply`` would."""
    # Hosts and pipelines report a definition that cannot be read.
    for location in read_receive_locations(connection):
        with suppress(DefinitionError):
            store_location_uri(connection, location.location_id, location.adapter.address(home))
    for port in read_send_ports(connection):
        with suppress(DefinitionError):
            uri = port.adapter.address(home)
            backup_uri = None if port.backup is None else port.backup.adapter.address(home)
            store_port_uris(connection, port.port_id, uri, backup_uri)


def _rename_existing_streams(files: Sequence[SavedFile], home: Path) -> None:
    """Rename existing folders of the streams. Their checkpoints skip batches that the restored database lacks."""
    streams = home / ".postroom" / "streams"
    names = {Path(file.find_target(home)).relative_to(streams).parts[0] for file in files}
    for name in names:
        if (streams / name).exists():
            (streams / name).rename(streams / f"{name}.{uuid.uuid4()}")


def _update_claim(file: SavedFile, path: Path) -> str:
    """Return the statement that points a claim to its restored file."""
    status = path.lstat()
    return build_claim_update(
        file.interchange_id,
        path,
        inode=get_inode(status),
        modified_before=file.modified_ns,
        modified_now=status.st_mtime_ns,
    )
