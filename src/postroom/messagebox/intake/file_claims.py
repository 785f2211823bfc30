"""The table ``file_claims``: the files that receive locations have claimed.

A file claim is a file that was moved into the private folder of its location under a new interchange id. Its row is
inserted before the file is moved, and deleted after the file was removed or archived.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from typing import Any

from psycopg.types.json import Jsonb

from postroom.messagebox.connection import Connection, read_value
from postroom.messagebox.intake.location_lock import ORDER_LOCK, lock_number
from postroom.messagebox.intake.numbered_interchanges import IntakeRow
from postroom.messagebox.statements import statement


class FileClaimState(IntEnum):
    """The progress of a file claim."""

    CLAIMING = 1  # the file is being moved, or has to settle again in the private folder
    CLAIMED = 2  # numbered: the stream receives it
    #: Its messages are committed, but the file is still there: it could not be removed, a backup copies files at the
    #: moment, or it is kept because it was written to.
    PUBLISHED = 3
    MISSING = 4  # the file vanished before it was published
    FAILED = 5  # quarantined: received again when the location is started the next time


@dataclass(frozen=True, slots=True, kw_only=True)
class FileClaim(IntakeRow):
    """A claimed file. ``size`` and ``modified_ns`` are those of the time when it was claimed."""

    name: str
    path: Path
    modified_ns: int
    inode: int | None = None
    """The inode number; None if the location trusts its senders."""
    reading: Mapping[str, Any] | None = field(default=None, compare=False)
    """How a reader of Spark reads the file; None before the first attempt."""

    @property
    def log_ids(self) -> dict[str, object]:
        """The id for a line in the log."""
        return {"interchange_id": self.interchange_id}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedClaim:
    """A file claim that the stream does not receive in its present state."""

    claim: FileClaim
    state: FileClaimState


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledFile:
    """A file that the stream can receive, with its present size, time and inode number."""

    interchange_id: uuid.UUID
    size: int
    modified_ns: int
    inode: int | None


def insert_file_claims(
    connection: Connection, location_id: uuid.UUID, files: Sequence[tuple[uuid.UUID, str, Path]]
) -> None:
    """Record that files are about to be moved. A file is given as its interchange id, name and new path."""
    ids, names, paths = zip(*files, strict=True)
    connection.execute(
        statement("queries/insert_file_claims"), (location_id, list(ids), list(names), [str(path) for path in paths])
    )


def adopt_file(connection: Connection, location_id: uuid.UUID, claim: FileClaim) -> None:
    """Record a file in the private folder that has no row."""
    connection.execute(
        "INSERT INTO file_claims (interchange_id, location_id, name, path, inode) VALUES (%s, %s, %s, %s, %s)",
        (claim.interchange_id, location_id, claim.name, str(claim.path), claim.inode),
    )


def number_claims(connection: Connection, settled: Sequence[SettledFile]) -> None:
    """Number file claims for the stream, in this order."""
    if not settled:
        return
    numbers = connection.execute("SELECT nextval('intake_number') FROM generate_series(1, %s)", (len(settled),))
    connection.execute(
        statement("queries/number_file_claims"),
        {"numbers": sorted(number for (number,) in numbers), **_columns(settled)},
    )


def number_claims_in_order(
    connection: Connection, location_id: uuid.UUID, settled: Sequence[SettledFile]
) -> set[uuid.UUID]:
    """Number the file claims of an ordered location. Return the ids of the claims that have to wait.

    A claim that was reset keeps its first number, and a later claim waits until that one is numbered. The lock keeps
    this and ``reset_all_claims`` apart, so that each sees the result of the other.
    """
    if not settled:
        return set()
    with connection.transaction():
        _lock_order(connection, location_id)
        numbered = connection.execute(
            statement("queries/number_file_claims_in_order"),
            {"location_id": location_id, **_columns(settled)},
        ).fetchall()
        waiting = {file.interchange_id for file in settled} - {interchange_id for (interchange_id,) in numbered}
        if not waiting:
            return waiting
        # The rest is not waiting: another attempt of their task has published them.
        rows = connection.execute(
            "SELECT interchange_id FROM file_claims WHERE interchange_id = ANY (%s) AND state = 1", (list(waiting),)
        )
        return {interchange_id for (interchange_id,) in rows}


def _columns(settled: Sequence[SettledFile]) -> dict[str, list[Any]]:
    return {
        "ids": [file.interchange_id for file in settled],
        "sizes": [file.size for file in settled],
        "times": [file.modified_ns for file in settled],
        "inodes": [file.inode for file in settled],
    }


def reset_claims(
    connection: Connection, interchange_ids: Iterable[uuid.UUID], state: FileClaimState = FileClaimState.CLAIMED
) -> None:
    """Have files settle again, as if they had just been moved. Claims in another state are not changed, because
    another process may have finished them."""
    connection.execute(
        "UPDATE file_claims SET state = 1, number = NULL, first_number = NULL"
        " WHERE interchange_id = ANY (%s) AND state = %s",
        (list(interchange_ids), int(state)),
    )


def reset_all_claims(connection: Connection, location_id: uuid.UUID) -> None:
    """Have all files of an ordered location settle again, in one step, so that none overtakes another. They keep their
    first numbers."""
    with connection.transaction():
        _lock_order(connection, location_id)
        connection.execute(
            "UPDATE file_claims SET state = 1, number = NULL WHERE location_id = %s AND state = 2", (location_id,)
        )


def read_first_numbers(connection: Connection, location_id: uuid.UUID) -> dict[uuid.UUID, int]:
    """Return the first numbers of the claims of an ordered location that were reset and are not numbered again."""
    rows = connection.execute(
        "SELECT interchange_id, first_number FROM file_claims"
        " WHERE location_id = %s AND state = 1 AND first_number IS NOT NULL",
        (location_id,),
    )
    return dict(rows.fetchall())


def _lock_order(connection: Connection, location_id: uuid.UUID) -> None:
    """Lock the order of a location until the transaction ends. This is a separate statement, so that the next one sees
    what was committed while this one waited."""
    connection.execute("SELECT pg_advisory_xact_lock(%s, %s)", (ORDER_LOCK, lock_number(location_id)))


def store_problem(connection: Connection, claim: FileClaim, state: FileClaimState, problem: str) -> None:
    """Store the problem of a claim, and where its file is now. A claim that another attempt has published keeps its
    state."""
    connection.execute(
        "UPDATE file_claims SET state = %(state)s, problem = %(problem)s, path = %(path)s"
        " WHERE interchange_id = %(id)s AND (state IN (1, 2) OR %(state)s = 3)",
        {"state": int(state), "problem": problem, "path": str(claim.path), "id": claim.interchange_id},
    )


def mark_published(connection: Connection, interchange_ids: Iterable[uuid.UUID]) -> None:
    """Record that the messages of files are committed, and that the files cannot be removed yet."""
    connection.execute(
        "UPDATE file_claims SET state = 3 WHERE interchange_id = ANY (%s) AND state IN (1, 2)", (list(interchange_ids),)
    )


def format_problem(claim: FileClaim, why: str) -> str:
    """Return the problem of a quarantined file: its original name, and where it is now."""
    uri = claim.path.as_uri()
    for path in (uri, uri.replace("file://", "file:"), f"file:{claim.path}", str(claim.path)):
        why = why.replace(path, claim.name)
    return f"could not be received: {why.rstrip('.')}. It is kept as {claim.path}."


def stop_reading(connection: Connection, interchange_id: uuid.UUID, problem: str) -> None:
    """Quarantine a file that is being read. The first problem is kept."""
    connection.execute(
        "UPDATE file_claims SET state = 5, problem = %s WHERE interchange_id = %s AND state = 2",
        (problem, interchange_id),
    )


def delete_file_claims(connection: Connection, interchange_ids: Iterable[uuid.UUID]) -> None:
    """Delete the claims of files that were removed or archived, or never moved."""
    connection.execute(statement("queries/delete_file_claims"), {"ids": list(interchange_ids)})


def find_known_ids(connection: Connection, interchange_ids: Sequence[uuid.UUID]) -> set[uuid.UUID]:
    """Return those of the ids that have a row."""
    rows = connection.execute(
        "SELECT interchange_id FROM file_claims WHERE interchange_id = ANY (%s)", (interchange_ids,)
    )
    return {interchange_id for (interchange_id,) in rows}


def store_inode(connection: Connection, interchange_id: uuid.UUID, inode: int) -> None:
    """Store the inode number of a file that is received without being numbered. Archiving gives it a second name."""
    connection.execute("UPDATE file_claims SET inode = %s WHERE interchange_id = %s", (inode, interchange_id))


def has_inode(connection: Connection, interchange_id: uuid.UUID) -> bool:
    """Return True if the inode number of a file is stored, so that the claim was complete before."""
    row = connection.execute("SELECT inode FROM file_claims WHERE interchange_id = %s", (interchange_id,)).fetchone()
    return row is not None and row[0] is not None


def read_unfinished_claims(connection: Connection, location_id: uuid.UUID) -> list[UnfinishedClaim]:
    """Return the claims of a location that the stream does not receive in their present state."""
    rows = connection.execute(
        "SELECT interchange_id, name, path, coalesce(size, -1), coalesce(modified_ns, -1), inode, state"
        "  FROM file_claims WHERE location_id = %s AND state <> 2",
        (location_id,),
    )
    return [UnfinishedClaim(claim=_to_claim(row), state=FileClaimState(row[6])) for row in rows]


def count_outstanding(connection: Connection, location_id: uuid.UUID) -> int:
    """Return the number of files of a location that are claimed and not yet published."""
    query = "SELECT count(*) FROM file_claims WHERE location_id = %s AND state IN (1, 2)"
    return int(read_value(connection, query, location_id))


def read_claims(connection: Connection, interchange_ids: Sequence[uuid.UUID]) -> list[FileClaim]:
    """Return the claims with these ids that are numbered now, in order."""
    rows = connection.execute(
        "SELECT interchange_id, name, path, size, modified_ns, inode, reading FROM file_claims"
        " WHERE interchange_id = ANY (%s) AND state = 2 ORDER BY number",
        (list(interchange_ids),),
    )
    return [replace(_to_claim(row), reading=row[6]) for row in rows]


def store_read_plan(connection: Connection, files: Sequence[FileClaim], plan: Mapping[str, Any]) -> list[FileClaim]:
    """Store how files are read, and their size and time, before the first of them is read. Return the claims that got
    the plan. A stored plan is never changed."""
    rows = connection.execute(
        statement("queries/store_read_plan"), (Jsonb(plan), [claim.interchange_id for claim in files])
    )
    plans: dict[uuid.UUID, Mapping[str, Any]] = dict(rows.fetchall())
    return [replace(claim, reading=plans[claim.interchange_id]) for claim in files if claim.interchange_id in plans]


def read_problem(connection: Connection, interchange_id: uuid.UUID) -> str | None:
    """Return the stored problem of a claim, or None."""
    row = connection.execute("SELECT problem FROM file_claims WHERE interchange_id = %s", (interchange_id,)).fetchone()
    return None if row is None else row[0]


def _to_claim(row: tuple[object, ...]) -> FileClaim:
    interchange_id, name, path, size, modified_ns, inode, *_ = row
    assert isinstance(interchange_id, uuid.UUID)
    assert isinstance(size, int)
    assert isinstance(modified_ns, int)
    assert inode is None or isinstance(inode, int)
    return FileClaim(
        interchange_id=interchange_id,
        name=str(name),
        path=Path(str(path)),
        size=size,
        modified_ns=modified_ns,
        inode=inode,
    )
