"""The queues of one host: its instances claim messages, and complete, retry, suspend or release them.

    queues = HostQueues("Orders")
    messaging = ServiceClass.MESSAGING_IN_PROCESS
    for claimed in queues.dequeue(connection, claim_id=uuid4(), host_instance=7, service_class=messaging, limit=100):
        ...
        queues.complete(connection, claimed.claim_id, [claimed.seq])

A claim belongs to the host instance that chose its id. After an instance is considered dead, other instances take over
its rows. Then every call of the late instance affects fewer rows than it names, and the results of the instance are
void.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from postroom.errors import ClaimLost, PostroomError
from postroom.message import Context
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection, Precondition, call_blocking, read_blocking, read_value
from postroom.system_properties import BTS

#: The maximum length of the description of a failure.
MAX_DESCRIPTION = 8000
#: The maximum number of messages of one ordered send port that one claim takes.
MAX_AHEAD = 25
PRIORITIES = range(1, 11)


class QueueTask(StrEnum):
    """The task of a queue row: what a host does with it."""

    DELIVER = "deliver"
    RECEIVE = "receive"
    PUBLISH = "publish"
    #: Deliver to an existing instance, which has a subscription of its own or belongs to a convoy.
    JOIN_INSTANCE = "join_instance"
    #: Publish the message of one subscriber again, to subscriptions that were created after it was routed.
    REROUTE = "reroute"
    #: Deliver to an ordered send port, which is one instance for all its messages.
    DELIVER_IN_ORDER = "deliver_in_order"


#: The error code of messages that an orchestration instance had not received when it ended (end_orchestrations).
UNRECEIVED = "0xC0C01B4C"
#: The tasks of messages for send ports.
DELIVERIES = (QueueTask.DELIVER, QueueTask.DELIVER_IN_ORDER)


class Cause(StrEnum):
    """Why an instance is suspended."""

    PORT_STOPPED = "port stopped"
    FAILURE = "failure"
    ROUTING_FAILURE_REPORT = "routing failure report"
    OPERATOR = "operator"


class ClaimedMessage(NamedTuple):
    """A queue row that a host instance has claimed, with the context and the body part of its message.

    A tuple instead of a dataclass: one is created for every message, and a frozen dataclass costs ten times as much.
    ``context`` is None only if the message is missing. ``body`` is None without a body, or if it is in fragments.
    ``originator_sid`` and ``originator_pid`` are the authenticated originator, independently of the context.
    ``group`` is the send port group that the message is routed through, if any. ``task`` is a QueueTask, and
    ``attempt`` counts the attempts before this one. If the backup transport of a send port sends the message,
    ``primary_attempts`` are those of the primary transport; otherwise it is None. ``properties`` are context properties
    that the adapter has updated in earlier attempts, as JSON. ``age`` is the time in seconds between the
    queueing, or the resuming, and the claim.
    """

    claim_id: uuid.UUID
    routing_version: int
    seq: int
    message_id: uuid.UUID
    service: bytes | None
    instance_id: uuid.UUID
    task: str
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
    primary_attempts: int | None = None
    properties: str | None = None
    age: float = 0.0
    priority: int = 5

    @property
    def originator(self) -> tuple[str, str] | None:
        """The originator of the message. None only if the message is missing."""
        if self.originator_sid is None or self.originator_pid is None:
            return None
        return self.originator_sid, self.originator_pid

    @property
    def delivery_id(self) -> uuid.UUID:
        """The id of the delivery of this message to its service, the same for every attempt: the instance id. The
        messages of an ordered send port share their instance, so there it is derived from instance and number."""
        if self.instance_id.bytes != self.service:  # the instance of an ordered port has the id of the port
            return self.instance_id
        return derive_delivery_id(self.instance_id, self.seq)

    @property
    def log_ids(self) -> dict[str, object]:
        """The ids for a line in the log: message, instance, and interchange if the message belongs to one."""
        interchange_id = None
        # A message of a program has none, and a damaged context must not prevent the line.
        with suppress(PostroomError, LookupError, ValueError):
            interchange_id = None if self.context is None else Context.from_json(self.context)[BTS.InterchangeID]
        return {"message_id": self.message_id, "instance_id": self.instance_id, "interchange_id": interchange_id}

    @property
    def service_id(self) -> uuid.UUID | None:
        """The id of the send port or receive location of the message."""
        return None if self.service is None else uuid.UUID(bytes=self.service)


class StoredPart(NamedTuple):
    """A stored part. ``body`` is None if it is in fragments."""

    part_id: uuid.UUID
    name: str
    content_type: str
    charset: str | None
    size: int
    body: bytes | None


@dataclass(frozen=True, kw_only=True)
class ScheduledRetry:
    """Retry after ``delay``, with the error of this attempt. With ``to_backup`` the backup transport sends it next."""

    delay: timedelta
    code: str
    description: str
    to_backup: bool = False
    properties: Mapping[str, Any] | None = None
    """Context properties that the adapter updates, as JSON values by key."""


@dataclass(frozen=True, kw_only=True)
class Postponement:
    """Wait for ``delay`` until the service window of the send port opens. No attempt was used up.

    With ``paused``, wait until the circuit breaker of the send port is closed, but at most for ``delay``."""

    delay: timedelta | None
    paused: bool = False


def derive_delivery_id(instance_id: uuid.UUID, seq: int) -> uuid.UUID:
    """Return the delivery id of a message of an ordered send port, from the id of the port and the number."""
    return uuid.uuid5(instance_id, str(seq))


#: Why a failed message of an ordered port is not resumable. The last line of its description.
OUT_OF_ORDER = "The port is ordered and has sent the messages after it, so it would be out of order."


@dataclass(frozen=True, kw_only=True)
class Suspension:
    """Suspend the message with an error, until an operator resumes or terminates it."""

    code: str
    description: str
    adapter: str | None = None
    uri: str | None = None
    resumable: bool = True
    properties: Mapping[str, Any] | None = None
    """Context properties that the adapter updates, as JSON values by key."""
    #: The message leaves the instance that it shares with others, and is suspended as this instance.
    instance_id: uuid.UUID | None = None


class HostQueues:
    """The procedures of the host ``name``. Every call is one statement on the caller's connection."""

    def __init__(self, name: str) -> None:
        host = name.lower()
        self._dequeue = f"SELECT * FROM dequeue_messages_{host}(%s, %s, %s, %s, coalesce(%s, now()), %s, %s, %s)"
        self._complete = f"complete_messages_{host}"
        self._retry = _format_call(f"retry_messages_{host}", "%s, %s, %s, %s, %s::jsonb[]")
        self._postpone = _format_call(f"postpone_messages_{host}", "%s, %s")
        self._suspend = _format_call(f"suspend_messages_{host}", "%s, %s, %s, %s, %s, %s::jsonb[], %s::uuid[]")
        self._insert_error = f"SELECT insert_error_message_{host}(%s, %s, %s, %s::jsonb, %s, %s)"
        self._release = f"SELECT release_messages_{host}(%s, %s::bigint[])"
        self._release_claims = f"SELECT release_claims_{host}(%s, %s::bigint[])"
        self._open_program_subscription = f"SELECT open_program_subscription_{host}(%s, %s, %s)"
        self._claim_for_program = f"SELECT * FROM claim_for_program_{host}(%s, %s, %s, %s)"
        self._extend_lease = f"SELECT extend_lease_{host}(%s, %s)"
        self._parts = f"SELECT * FROM read_parts_{host}(%s, %s, %s)"
        self._fragments = f"SELECT * FROM read_fragments_{host}(%s, %s, %s, %s, %s, %s)"

    def dequeue(
        self,
        connection: Connection,
        *,
        claim_id: uuid.UUID,
        host_instance: int,
        service_class: ServiceClass,
        limit: int,
        excluded: Iterable[bytes] = (),
        ahead: int = MAX_AHEAD,
        starts: Mapping[int, int] | None = None,
        now: datetime | None = None,
    ) -> list[ClaimedMessage]:
        """Claim up to ``limit`` messages, highest priority first. Scheduled messages that are due are included.

        Messages of ordered send ports are claimed in addition, by port in the order of their numbers: up to ``limit``,
        and up to ``ahead`` of each port. ``excluded`` are the ids of services whose messages are skipped. ``starts``
        are the numbers to start at, by priority. If there are fewer than ``limit`` messages from there on, all are
        looked at.
        """
        skipped = f"{{{','.join(service.hex() for service in excluded)}}}"
        from_each = None if starts is None else format_array(starts.get(priority, 0) for priority in PRIORITIES)
        arguments = (claim_id, host_instance, service_class, limit, now, skipped, ahead, from_each)

        def make_row(row: Sequence[Any]) -> ClaimedMessage:
            return ClaimedMessage(claim_id, *row)

        return read_blocking(connection, self._dequeue, make_row, *arguments)

    def open_program_subscription(
        self, connection: Connection, name: str, expire_after: timedelta | None, max_attempts: int | None
    ) -> uuid.UUID:
        """Create the subscription of a program, or find it, and note that it is used. Return its service id."""
        arguments = (name, expire_after, max_attempts)
        service_id: uuid.UUID = read_value(connection, self._open_program_subscription, *arguments)
        return service_id

    def claim_for_program(
        self, connection: Connection, service_id: uuid.UUID, *, claim_id: uuid.UUID, limit: int, lease: timedelta
    ) -> list[ClaimedMessage]:
        """Claim up to ``limit`` messages of a program's subscription, until the lease expires."""
        arguments = (service_id, claim_id, limit, lease)
        rows = connection.execute(self._claim_for_program, arguments, binary=True).fetchall()
        return [ClaimedMessage(claim_id, *row) for row in rows]

    def extend_lease(self, connection: Connection, claim_id: uuid.UUID, lease: timedelta) -> bool:
        """Extend the lease of a program's claim, from now on. Return False if it has expired."""
        return bool(read_value(connection, self._extend_lease, claim_id, lease))

    def complete(self, connection: Connection, claim_id: uuid.UUID, seqs: Sequence[int] | None = None) -> int:
        """Delete these rows, or all rows of the claim, and release their messages. Return the number of rows that the
        claim still had."""
        return self.complete_claims(connection, {claim_id: seqs})

    def complete_claims(self, connection: Connection, claims: Mapping[uuid.UUID, Sequence[int] | None]) -> int:
        """Complete rows of several claims in one statement. Return the number of rows that the claims still had."""
        # The same text for any number of claims, because the statement is prepared.
        result = call_blocking(
            connection,
            f"SELECT sum({self._complete}(c.id, c.seqs::bigint[])) FROM unnest(%s::uuid[], %s::text[]) AS c (id, seqs)",
            list(claims),
            [None if seqs is None else format_array(seqs) for seqs in claims.values()],
        )
        return int.from_bytes(result.get_value(0, 0) or b"", "big")

    def complete_message(self, connection: Connection, claimed: ClaimedMessage) -> None:
        """Complete one message. Raise ClaimLost if another host instance has taken it over."""
        check_claim(self.complete(connection, claimed.claim_id, [claimed.seq]) == 1)

    def build_completion(self, claimed: ClaimedMessage) -> Precondition:
        """Return the precondition that completes a message. It fails if another host instance has taken it over."""
        return Precondition(
            expression=f"{self._complete}(%s, %s::bigint[]) = 1", arguments=(claimed.claim_id, [claimed.seq])
        )

    def retry(
        self,
        connection: Connection,
        claim_id: uuid.UUID,
        retries: dict[int, ScheduledRetry],
        now: datetime | None = None,
    ) -> int:
        """Schedule retries, by sequence number. Return the number of rows that the claim still had."""
        values = list(retries.values())
        return _count(
            connection,
            self._retry,
            (
                claim_id,
                format_array(retries),
                [retry.delay for retry in values],
                [to_storable_text(retry.code) for retry in values],
                [to_storable_text(retry.description) for retry in values],
                [retry.to_backup for retry in values],
                _format_properties(values),
                now,
            ),
        )

    def postpone(
        self,
        connection: Connection,
        claim_id: uuid.UUID,
        postponements: dict[int, Postponement],
        now: datetime | None = None,
    ) -> int:
        """Postpone rows, by sequence number. Return the number of rows that the claim still had."""
        delays = [postponement.delay for postponement in postponements.values()]
        paused = [postponement.paused for postponement in postponements.values()]
        return _count(connection, self._postpone, (claim_id, format_array(postponements), delays, paused, now))

    def suspend(
        self,
        connection: Connection,
        claim_id: uuid.UUID,
        suspensions: dict[int, Suspension],
        now: datetime | None = None,
    ) -> int:
        """Suspend rows, by sequence number. Return the number of rows that the claim still had."""
        values = list(suspensions.values())
        return _count(
            connection,
            self._suspend,
            (
                claim_id,
                format_array(suspensions),
                [to_storable_text(suspension.code) for suspension in values],
                [to_storable_text(suspension.description) for suspension in values],
                [suspension.adapter for suspension in values],
                [suspension.uri for suspension in values],
                [suspension.resumable for suspension in values],
                _format_properties(values),
                [suspension.instance_id for suspension in values],
                now,
            ),
        )

    def suspend_message(
        self, connection: Connection, claimed: ClaimedMessage, suspension: Suspension, now: datetime | None = None
    ) -> None:
        """Suspend one message. Raise ClaimLost if another host instance has taken it over."""
        check_claim(self.suspend(connection, claimed.claim_id, {claimed.seq: suspension}, now) == 1)

    def insert_error_message(
        self,
        connection: Connection,
        claimed: ClaimedMessage,
        *,
        error_id: uuid.UUID,
        context: str,
        adapter: str | None,
        uri: str | None,
    ) -> list[uuid.UUID] | None:
        """Store an error message with the parts of this message, and delete the row of this message. ``adapter`` and
        ``uri`` say where the message failed.

        Return the ids of the parts, or None if the claim no longer has the row.
        """
        parts: list[uuid.UUID] | None = read_value(
            connection, self._insert_error, claimed.claim_id, claimed.seq, error_id, context, adapter, uri
        )
        return parts

    def release(self, connection: Connection, claim_id: uuid.UUID, seqs: Sequence[int] | None = None) -> int:
        """Return these rows, or all rows of the claim, to the queue. Return the number that the claim still had."""
        return _count(connection, self._release, (claim_id, None if seqs is None else format_array(seqs)))

    def release_claims(self, connection: Connection, host_instance: int, unfinished: Sequence[int] = ()) -> int:
        """Release all claims of the host instance, except its unfinished messages. Return the number of rows."""
        return _count(connection, self._release_claims, (host_instance, format_array(unfinished)))

    def read_parts(self, connection: Connection, claimed: ClaimedMessage) -> list[StoredPart]:
        """Return all parts of a claimed message, in order."""
        arguments = (claimed.claim_id, claimed.seq, claimed.message_id)
        rows = connection.execute(self._parts, arguments, binary=True).fetchall()
        return [StoredPart(*row) for row in rows]

    def read_fragments(
        self, connection: Connection, claimed: ClaimedMessage, part_id: uuid.UUID, *, start: int, count: int
    ) -> list[tuple[int, bytes]]:
        """Return up to ``count`` numbered fragments of a part of a claimed message, from ``start`` on."""
        arguments = (claimed.claim_id, claimed.seq, claimed.message_id, part_id, start, count)
        rows = connection.execute(self._fragments, arguments, binary=True).fetchall()
        return [(number, body) for number, body in rows]


def _format_call(function: str, arguments: str) -> str:
    """Return the call of a function that moves rows of a claim: with the claim, their numbers, and the present time."""
    return f"SELECT {function}(%s, %s::bigint[], {arguments}, coalesce(%s, now()))"


def _count(connection: Connection, call: str, arguments: tuple[object, ...]) -> int:
    return int(read_value(connection, call, *arguments))


def check_claim(is_kept: bool) -> None:
    """Raise ClaimLost unless the claim still has its message."""
    if not is_kept:
        raise ClaimLost("Another host instance has taken over the message.")


def format_array(values: Iterable[object]) -> str:
    """Format an array as text, because the driver inspects every value of a list to choose its type."""
    return f"{{{','.join(map(str, values))}}}"


def _format_properties(outcomes: Iterable[ScheduledRetry | Suspension]) -> list[str | None]:
    return [None if outcome.properties is None else json.dumps(outcome.properties) for outcome in outcomes]


def to_storable_text(text: str) -> str:
    """Replace NUL characters and lone surrogates, which PostgreSQL's text type rejects."""
    return text.replace("\0", "\\0").encode("utf-8", "replace").decode()
