"""The files that receive locations have claimed, as the MessageBox keeps them in the table ``file_claims``.

A claim is a file that was moved into a location's private folder under a fresh interchange id. Its row is there before
the file is moved, and until the file is gone for good.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from typing import Any

from psycopg.types.json import Jsonb

from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement
from postroom.spark.intake.location_lock import ORDER_LOCK, lock_number


class ClaimState(IntEnum):
    """How far a claim has come."""

    CLAIMING = 1  # the file is being moved, or has to settle again where it is now
    CLAIMED = 2  # it is the stream's
    PUBLISHED = 3  # its messages are committed, and something holds up its removal
    MISSING = 4  # it vanished before it was published
    FAILED = 5  # receiving it raised what no message should; tried again when the location is next started


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claimed file. ``size`` and ``modified_ns`` are those that it was claimed with."""

    interchange_id: uuid.UUID
    name: str
    path: Path
    size: int
    modified_ns: int
    inode: int | None = None
    """The inode number; None if the location trusts its senders."""
    reading: Mapping[str, Any] | None = field(default=None, compare=False)
    """How Spark's own reader reads it, once that has begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """A claim that is not the stream's."""

    claim: Claim
    state: ClaimState


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A file that can be given to the stream, and how it looks now."""

    interchange_id: uuid.UUID
    size: int
    modified_ns: int
    inode: int | None


def begin(connection: Connection, location_id: uuid.UUID, files: Sequence[tuple[uuid.UUID, str, Path]]) -> None:
    """Records that these files (interchange id, name, where to) are about to be moved."""
    ids, names, paths = zip(*files, strict=True)
    connection.execute(
        "INSERT INTO file_claims (interchange_id, location_id, name, path)"
        " SELECT id, %s, name, path FROM unnest(%s::uuid[], %s::text[], %s::text[]) AS file (id, name, path)",
        (location_id, list(ids), list(names), [str(path) for path in paths]),
    )


def adopt(connection: Connection, location_id: uuid.UUID, claim: Claim) -> None:
    """Records a file that was claimed before and has no row."""
    connection.execute(
        "INSERT INTO file_claims (interchange_id, location_id, name, path, inode) VALUES (%s, %s, %s, %s, %s)",
        (claim.interchange_id, location_id, claim.name, str(claim.path), claim.inode),
    )


def complete(connection: Connection, settled: Sequence[Settled]) -> None:
    """Hands files to the stream, numbered in this order.

    Only the one claimer of a location numbers its claims, one transaction after the other: whoever sees a number sees
    all the lower ones.
    """
    if not settled:
        return
    numbers = connection.execute("SELECT nextval('file_claim_number') FROM generate_series(1, %s)", (len(settled),))
    connection.execute(
        "UPDATE file_claims SET state = 2, number = file.number, place = coalesce(place, file.number),"
        "       size = file.size, modified_ns = file.modified_ns, inode = file.inode, problem = NULL, attempts = 0"
        "  FROM unnest(%(ids)s::uuid[], %(numbers)s::bigint[], %(sizes)s::bigint[], %(times)s::bigint[],"
        "              %(inodes)s::bigint[]) AS file (id, number, size, modified_ns, inode)"
        " WHERE interchange_id = file.id AND state = 1",
        {"numbers": sorted(number for (number,) in numbers), **_columns(settled)},
    )


def complete_in_order(connection: Connection, location_id: uuid.UUID, settled: Sequence[Settled]) -> set[uuid.UUID]:
    """As ``complete``, for an ordered location: a claim that was taken back keeps its place, and nothing that comes
    after it is numbered before it. Returns which of the files have to wait for that.

    Numbering and ``settle_all_again`` come one after the other, so that neither misses what the other has done.
    """
    if not settled:
        return set()
    with connection.transaction():
        _lock_order(connection, location_id)
        numbered = connection.execute(
            statement("queries/number_file_claims_in_order"),
            {"location_id": location_id, **_columns(settled)},
        ).fetchall()
        waiting = {one.interchange_id for one in settled} - {interchange_id for (interchange_id,) in numbered}
        if not waiting:
            return waiting
        # The others are not waiting: another attempt of their task has published them.
        rows = connection.execute(
            "SELECT interchange_id FROM file_claims WHERE interchange_id = ANY (%s) AND state = 1", (list(waiting),)
        )
        return {interchange_id for (interchange_id,) in rows}


def _columns(settled: Sequence[Settled]) -> dict[str, list[Any]]:
    return {
        "ids": [one.interchange_id for one in settled],
        "sizes": [one.size for one in settled],
        "times": [one.modified_ns for one in settled],
        "inodes": [one.inode for one in settled],
    }


def settle_again(
    connection: Connection, interchange_ids: Iterable[uuid.UUID], state: ClaimState = ClaimState.CLAIMED
) -> None:
    """Takes claims back from the stream, or brings back what was held: as if they had just come. Only those in this
    state: somebody else may have come further with them."""
    connection.execute(
        "UPDATE file_claims SET state = 1, number = NULL, place = NULL WHERE interchange_id = ANY (%s) AND state = %s",
        (list(interchange_ids), int(state)),
    )


def settle_all_again(connection: Connection, location_id: uuid.UUID) -> None:
    """Takes all claims of an ordered location back from the stream, in one step: none may pass another. They keep their
    places."""
    with connection.transaction():
        _lock_order(connection, location_id)
        connection.execute(
            "UPDATE file_claims SET state = 1, number = NULL WHERE location_id = %s AND state = 2", (location_id,)
        )


def places(connection: Connection, location_id: uuid.UUID) -> dict[uuid.UUID, int]:
    """The places of the claims that an ordered location has taken back, and not numbered again."""
    rows = connection.execute(
        "SELECT interchange_id, place FROM file_claims WHERE location_id = %s AND state = 1 AND place IS NOT NULL",
        (location_id,),
    )
    return dict(rows.fetchall())


def _lock_order(connection: Connection, location_id: uuid.UUID) -> None:
    """Until the transaction ends. A statement of its own: the next one sees what was committed while this waited."""
    connection.execute("SELECT pg_advisory_xact_lock(%s, %s)", (ORDER_LOCK, lock_number(location_id)))


def record_attempt(connection: Connection, interchange_id: uuid.UUID) -> int:
    """Record that a task is about to process a file alone. Return the number of attempts since the last restart of
    PostgreSQL, or 0 if the file is done."""
    row = connection.execute(
        "UPDATE file_claims"
        "   SET attempts = CASE WHEN attempts_since = pg_postmaster_start_time() THEN attempts ELSE 0 END + 1,"
        "       attempts_since = pg_postmaster_start_time() WHERE interchange_id = %s RETURNING attempts",
        (interchange_id,),
    ).fetchone()
    return 0 if row is None else int(row[0])


def undo_attempt(connection: Connection, interchange_id: uuid.UUID) -> None:
    """Undo one ``record_attempt``."""
    connection.execute(
        "UPDATE file_claims SET attempts = greatest(attempts - 1, 0) WHERE interchange_id = %s", (interchange_id,)
    )


def hold(connection: Connection, claim: Claim, state: ClaimState, problem: str) -> None:
    """Keeps a claim that cannot go on, with what is wrong and where its file is now. What another attempt has published
    stays so."""
    connection.execute(
        "UPDATE file_claims SET state = %(state)s, problem = %(problem)s, path = %(path)s"
        " WHERE interchange_id = %(id)s AND (state IN (1, 2) OR %(state)s = 3)",
        {"state": int(state), "problem": problem, "path": str(claim.path), "id": claim.interchange_id},
    )


def not_received(claim: Claim, why: str) -> str:
    """Return the problem of a quarantined file: its original name, and where it is now."""
    uri = claim.path.as_uri()
    for path in (uri, uri.replace("file://", "file:"), f"file:{claim.path}", str(claim.path)):
        why = why.replace(path, claim.name)
    return f"could not be received: {why.rstrip('.')}. It is kept as {claim.path}."


def quarantined_files(connection: Connection, location_id: uuid.UUID) -> list[tuple[str, str]]:
    """The files of a location, and what adapters have handed over to it, that nobody reads before its next start; by
    name, with what is wrong."""
    return connection.execute(
        "SELECT name, problem FROM file_claims WHERE location_id = %(id)s AND state IN (4, 5) AND problem IS NOT NULL"
        " UNION ALL SELECT interchange_id::text, problem FROM inbox WHERE location_id = %(id)s AND problem IS NOT NULL"
        " ORDER BY 1",
        {"id": location_id},
    ).fetchall()


def stop_reading(connection: Connection, interchange_id: uuid.UUID, problem: str) -> None:
    """Keeps a file that is being read from being read on, and says why. The first problem counts."""
    connection.execute(
        "UPDATE file_claims SET state = 5, problem = %s WHERE interchange_id = %s AND state = 2",
        (problem, interchange_id),
    )


def forget(connection: Connection, interchange_ids: Iterable[uuid.UUID]) -> None:
    """Deletes claims whose files are gone for good, or were never moved."""
    connection.execute("DELETE FROM file_claims WHERE interchange_id = ANY (%s)", (list(interchange_ids),))


def known(connection: Connection, interchange_ids: Sequence[uuid.UUID]) -> set[uuid.UUID]:
    """Which of these have a row."""
    rows = connection.execute(
        "SELECT interchange_id FROM file_claims WHERE interchange_id = ANY (%s)", (interchange_ids,)
    )
    return {interchange_id for (interchange_id,) in rows}


def was_complete(connection: Connection, interchange_id: uuid.UUID) -> bool:
    """Return True if a claim was complete before: its file has an inode number on record."""
    row = connection.execute("SELECT inode FROM file_claims WHERE interchange_id = %s", (interchange_id,)).fetchone()
    return row is not None and row[0] is not None


def unfinished(connection: Connection, location_id: uuid.UUID) -> list[Unfinished]:
    """The claims of a location that are not the stream's."""
    rows = connection.execute(
        "SELECT interchange_id, name, path, coalesce(size, -1), coalesce(modified_ns, -1), inode, state"
        "  FROM file_claims WHERE location_id = %s AND state <> 2",
        (location_id,),
    )
    return [Unfinished(claim=_claim(row), state=ClaimState(row[6])) for row in rows]


def outstanding(connection: Connection, location_id: uuid.UUID) -> int:
    """How many files of a location are claimed and not published yet."""
    row = connection.execute(
        "SELECT count(*) FROM file_claims WHERE location_id = %s AND state IN (1, 2)", (location_id,)
    ).fetchone()
    assert row is not None
    return int(row[0])


def newest(connection: Connection, location_id: uuid.UUID, after: int, most: int | None) -> int:
    """The number that the next ``most`` claims after a number end with; ``after`` itself if there are none."""
    row = connection.execute(
        "SELECT max(number) FROM (SELECT number FROM file_claims WHERE location_id = %s AND number > %s AND state = 2"
        "                          ORDER BY number LIMIT %s) AS next",
        (location_id, after, most),
    ).fetchone()
    assert row is not None
    return after if row[0] is None else int(row[0])


def between(connection: Connection, location_id: uuid.UUID, after: int, last: int) -> list[Claim]:
    """The stream's claims with numbers above ``after`` and up to ``last``, in order."""
    rows = connection.execute(
        "SELECT interchange_id, name, path, size, modified_ns, inode, reading FROM file_claims"
        " WHERE location_id = %s AND number > %s AND number <= %s AND state = 2 ORDER BY number",
        (location_id, after, last),
    )
    return [replace(_claim(row), reading=row[6]) for row in rows]


def fix_reading(connection: Connection, files: Sequence[Claim], plan: Mapping[str, Any]) -> list[Claim]:
    """Writes down how files are read, and what they were then, before any of them is; for good."""
    rows = connection.execute(
        "UPDATE file_claims"
        "   SET reading = jsonb_build_object('plan', %s::jsonb, 'size', size, 'modified_ns', modified_ns)"
        " WHERE interchange_id = ANY (%s) AND state = 2 AND reading IS NULL RETURNING interchange_id, reading",
        (Jsonb(plan), [claim.interchange_id for claim in files]),
    )
    fixed: dict[uuid.UUID, Mapping[str, Any]] = dict(rows.fetchall())
    return [replace(claim, reading=fixed[claim.interchange_id]) for claim in files if claim.interchange_id in fixed]


def problem_of(connection: Connection, interchange_id: uuid.UUID) -> str | None:
    """What holds up a claim."""
    row = connection.execute("SELECT problem FROM file_claims WHERE interchange_id = %s", (interchange_id,)).fetchone()
    return None if row is None else row[0]


def _claim(row: tuple[object, ...]) -> Claim:
    interchange_id, name, path, size, modified_ns, inode, *_ = row
    assert isinstance(interchange_id, uuid.UUID)
    assert isinstance(size, int)
    assert isinstance(modified_ns, int)
    assert inode is None or isinstance(inode, int)
    return Claim(
        interchange_id=interchange_id,
        name=str(name),
        path=Path(str(path)),
        size=size,
        modified_ns=modified_ns,
        inode=inode,
    )
