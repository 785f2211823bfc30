"""The queues of one host, as its instances use them: claim, and then complete, retry, suspend or give back.

    queues = HostQueues("Orders")
    for claimed in queues.dequeue(connection, claim_id=uuid4(), host_instance=7, service_class=4, limit=100):
        ...
        queues.complete(connection, claimed.claim_id, [claimed.seq])

A claim belongs to whoever made up its id. When the instance that made it was taken for dead, its rows were given to
others: then every call here finds fewer rows than it was asked for, and the result of the late instance is void.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult

from postroom.errors import PostroomError
from postroom.messagebox.connection import Connection
from postroom.messagebox.postgres_errors import translate_errors

#: A host that was woken this short a time ago is still looking.
_QUIET_SECONDS = 0.02

#: Inside ``hold_wake_ups``: the hosts to wake at its end.
_held: ContextVar[set[str] | None] = ContextVar("held_wake_ups", default=None)


class ClaimedMessage(NamedTuple):
    """A queue row that this host instance works on, with its message's context and body part.

    A tuple and not a dataclass: one is made for every message, and a frozen dataclass costs ten times as much.
    ``context`` is None only if the message is gone; ``body`` is None if there is none, or if it stands in fragments.
    ``originator_sid`` and ``originator_pid`` are what the MessageBox says of who it is from, whatever its context does.
    ``group`` is the send port group that it comes through, if it does.
    """

    claim_id: uuid.UUID
    routing_version: int
    seq: int
    message_id: uuid.UUID
    service: bytes | None
    instance_id: uuid.UUID
    task: int
    attempt: int
    context: str | None
    part_count: int | None
    body_part_id: uuid.UUID | None
    body_part_name: str | None
    content_type: str | None
    charset: str | None
    body: bytes | None
    originator_sid: str | None
    originator_pid: str | None
    group: str | None = None

    @property
    def originator(self) -> tuple[str, str] | None:
        """Who the message is from; None only if it is gone."""
        if self.originator_sid is None or self.originator_pid is None:
            return None
        return self.originator_sid, self.originator_pid

    @property
    def service_id(self) -> uuid.UUID | None:
        """The send port, or the receive location, that the message is for."""
        return None if self.service is None else uuid.UUID(bytes=self.service)


class StoredPart(NamedTuple):
    """A part as it is stored; ``body`` is None when it stands in fragments."""

    part_id: uuid.UUID
    name: str
    content_type: str
    charset: str | None
    size: int
    body: bytes | None


@dataclass(frozen=True, kw_only=True)
class Retry:
    """Try again after ``delay``; the reason is what failed this time."""

    delay: timedelta
    code: str
    description: str


@dataclass(frozen=True, kw_only=True)
class Suspension:
    """Keep it, with the reason, until somebody resumes or terminates it."""

    code: str
    description: str
    adapter: str | None = None
    uri: str | None = None
    resumable: bool = True


class HostQueues:
    """The procedures of the host called ``name``; every call is one statement on the caller's connection."""

    def __init__(self, name: str) -> None:
        host = name.lower()
        self._dequeue = f"SELECT * FROM dequeue_messages_{host}($1, $2, $3, $4, coalesce($5, now()))".encode()
        self._in_order = f"SELECT * FROM dequeue_in_order_{host}($1, $2, $3, $4, coalesce($5, now()))".encode()
        self._complete = f"complete_messages_{host}"
        self._retry = f"SELECT retry_messages_{host}(%s, %s::bigint[], %s, %s, %s, coalesce(%s, now()))"
        self._suspend = f"SELECT suspend_messages_{host}(%s, %s::bigint[], %s, %s, %s, %s, %s, coalesce(%s, now()))"
        self._insert_error = f"SELECT insert_error_message_{host}(%s, %s, %s, %s::jsonb)"
        self._release = f"SELECT release_messages_{host}(%s, %s::bigint[])"
        self._release_claims = f"SELECT release_claims_{host}(%s, %s::bigint[])"
        self._parts = f"SELECT * FROM read_parts_{host}(%s, %s)"
        self._fragments = f"SELECT * FROM read_fragments_{host}(%s, %s, %s, %s, %s)"

    def dequeue(
        self,
        connection: Connection,
        *,
        claim_id: uuid.UUID,
        host_instance: int,
        service_class: int,
        limit: int,
        in_order: bool = False,
        now: datetime | None = None,
    ) -> list[ClaimedMessage]:
        """Claims up to ``limit`` messages, best priority first, after it has taken what is due from the scheduled.

        ``in_order`` leaves out what comes for an instance after something that is not dealt with yet."""
        call = self._in_order if in_order else self._dequeue
        result = call_blocking(connection, call, claim_id, host_instance, service_class, limit, now)
        rows = Transformer(connection)
        rows.set_pgresult(result)
        return rows.load_rows(0, result.ntuples, lambda row: ClaimedMessage(claim_id, *row))

    def complete(self, connection: Connection, claim_id: uuid.UUID, seqs: Sequence[int]) -> int:
        """These were handled: deletes them and releases their messages. Returns how many the claim still held."""
        return self.complete_claims(connection, {claim_id: seqs})

    def complete_claims(self, connection: Connection, claims: Mapping[uuid.UUID, Sequence[int]]) -> int:
        """Those of several claims, all or none of them in one statement. Returns how many the claims still held."""
        calls = (f"{self._complete}(${2 * n + 1}, ${2 * n + 2})" for n in range(len(claims)))
        arguments = [given for claim_id, seqs in claims.items() for given in (claim_id, _array(seqs))]
        result = call_blocking(connection, f"SELECT {' + '.join(calls)}".encode(), *arguments)
        return int.from_bytes(result.get_value(0, 0) or b"", "big")

    def retry(
        self, connection: Connection, claim_id: uuid.UUID, retries: dict[int, Retry], now: datetime | None = None
    ) -> int:
        """These are to be tried again, by number. Returns how many the claim still held."""
        given = list(retries.values())
        return _count(
            connection,
            self._retry,
            (
                claim_id,
                _array(retries),
                [one.delay for one in given],
                [to_storable_text(one.code) for one in given],
                [to_storable_text(one.description) for one in given],
                now,
            ),
        )

    def suspend(
        self,
        connection: Connection,
        claim_id: uuid.UUID,
        suspensions: dict[int, Suspension],
        now: datetime | None = None,
    ) -> int:
        """These cannot go on, by number. Returns how many the claim still held."""
        given = list(suspensions.values())
        return _count(
            connection,
            self._suspend,
            (
                claim_id,
                _array(suspensions),
                [to_storable_text(one.code) for one in given],
                [to_storable_text(one.description) for one in given],
                [one.adapter for one in given],
                [one.uri for one in given],
                [one.resumable for one in given],
                now,
            ),
        )

    def insert_error_message(
        self, connection: Connection, claimed: ClaimedMessage, *, error_id: uuid.UUID, context: str
    ) -> list[uuid.UUID] | None:
        """Stores an error message with the parts of this one, and deletes the row of this one. Returns the ids of the
        parts; None if the claim does not hold the row any more."""
        row = connection.execute(self._insert_error, (claimed.claim_id, claimed.seq, error_id, context)).fetchone()
        assert row is not None
        parts: list[uuid.UUID] | None = row[0]
        return parts

    def release(self, connection: Connection, claim_id: uuid.UUID, seqs: Sequence[int] | None = None) -> int:
        """These, or all of the claim, go back as they were. Returns how many the claim still held."""
        return _count(connection, self._release, (claim_id, None if seqs is None else _array(seqs)))

    def release_claims(self, connection: Connection, host_instance: int, held: Sequence[int] = ()) -> int:
        """Gives back all that the host instance ever claimed, except the numbers that it holds."""
        return _count(connection, self._release_claims, (host_instance, _array(held)))

    def parts(self, connection: Connection, claim_id: uuid.UUID, message_id: uuid.UUID) -> list[StoredPart]:
        """All parts of a claimed message, in order."""
        rows = connection.execute(self._parts, (claim_id, message_id), binary=True).fetchall()
        return [StoredPart(*row) for row in rows]

    def fragments(
        self,
        connection: Connection,
        claim_id: uuid.UUID,
        message_id: uuid.UUID,
        part_id: uuid.UUID,
        *,
        start: int,
        count: int,
    ) -> list[tuple[int, bytes]]:
        """Up to ``count`` fragments of a part of a claimed message, with their numbers, from ``start`` on."""
        arguments = (claim_id, message_id, part_id, start, count)
        rows = connection.execute(self._fragments, arguments, binary=True).fetchall()
        return [(number, body) for number, body in rows]


def call_blocking(connection: Connection, command: bytes, *arguments: object) -> PGresult:
    """The answer to one SELECT, with $1, $2 ... for its arguments, in binary form. Raises what ``execute`` would raise.

    Not prepared: the driver forgets what is prepared on a connection whenever a transaction is rolled back.
    """
    encoded = [None if value is None else str(value).encode() for value in arguments]
    with translate_errors():
        with connection.lock:
            result = connection.pgconn.exec_params(command, encoded, result_format=Format.BINARY)
        if result.status != ExecStatus.TUPLES_OK:
            raise error_from_result(result, encoding=connection.info.encoding)
    return result


def _count(connection: Connection, call: str, arguments: tuple[object, ...]) -> int:
    row = connection.execute(call, arguments).fetchone()
    assert row is not None
    return int(row[0])


def _array(seqs: Iterable[int]) -> str:
    """As text, because the driver looks at every number of a list to choose a type that holds all."""
    return f"{{{','.join(map(str, seqs))}}}"


def to_storable_text(text: str) -> str:
    """What adapters say may contain anything; PostgreSQL's text takes no NUL and no lone surrogate."""
    return text.replace("\0", "\\0").encode("utf-8", "replace").decode()


def channel_of(host_name: str) -> str:
    """The channel that the instances of a host listen on."""
    return f"postroom_{host_name.lower()}"


@contextmanager
def hold_wake_ups(connection: Connection) -> Iterator[None]:
    """Keeps wake-ups back until the end, for operations inside one transaction. After an error none is sent."""
    hosts: set[str] = set()
    token = _held.set(hosts)
    try:
        yield
    finally:
        _held.reset(token)
    WakeUp(connection).send(hosts)


class WakeUp:
    """Wakes hosts after a commit that put rows into their queues, at most once per host and moment.

    A NOTIFY inside a publishing transaction would take a database-wide lock until it commits. A lost wake-up costs only
    time, because every host polls."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sent: dict[str, float] = {}

    def send(self, hosts: Iterable[str]) -> None:
        """Wakes these hosts, except those that were woken just now."""
        held = _held.get()
        if held is not None:
            held.update(hosts)
            return
        now = time.monotonic()
        due = [host for host in hosts if now - self._sent.get(host, 0.0) > _QUIET_SECONDS]
        for host in due:
            self._sent[host] = now
        if due:
            # The work is committed; that nobody could be woken must not make it look otherwise.
            with suppress(PostroomError):
                self._connection.execute(
                    "SELECT pg_notify(channel, '') FROM unnest(%s::text[]) channel",
                    ([channel_of(host) for host in due],),
                )
