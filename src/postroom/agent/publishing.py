"""The direct lane: one caller, one transaction, an answer at once.

    agent = MessageAgent(connection, host, routing=RoutingTable())
    [published] = agent.publish([Message.of(b"...", promoted={Region: "EU"})])
    published.subscribers                                   # ("Europe", "Audit")

A publish is atomic: every message is accepted, or none is and PublishFailed says for each what was wrong. With a
``key`` it can be repeated after a lost answer: the second time gives the first answer and publishes nothing.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import psycopg

from postroom.agent.acknowledgements import is_acknowledgement
from postroom.agent.authorised import routing_failure
from postroom.agent.finding import Found, IndexFinder, SqlFinder, clear_predicates, instances_for, wrong_types
from postroom.agent.identity import Kind, derive_id, unit_for_key
from postroom.agent.originator import Login, believed, names_originator, stored_originator
from postroom.agent.reports import RoutingFailureReport, write_reports
from postroom.agent.routing import RoutingTable
from postroom.agent.wake_up import WakeUp
from postroom.errors import BadValue, PublishFailed, PublishResult, RoutingFailure, StateError
from postroom.message import FRAGMENT_SIZE, Message, Part
from postroom.messagebox.configuration import Host, ServiceClass
from postroom.messagebox.connection import Connection, transaction
from postroom.messagebox.writing import (
    Cause,
    SuspendedRow,
    Task,
    write_fragments,
    write_message,
)
from postroom.system_properties import BTS

_STALE, _NOBODY = "PR001", "PR002"
_INSERT = (
    "SELECT insert_message(%s::uuid, %s::bigint, %s::uuid, %s::jsonb, %s::bigint[], %s::uuid[], %s::uuid[], %s::uuid,"
    " %s::text, %s::text, %s::text, %s::bigint, %b::bytea)"
)
_INSERT_PART = "SELECT insert_part(%s::uuid, %s::text, %s::text, %s::text, %s::bigint, %b::bytea)"


@dataclass(frozen=True, kw_only=True)
class Published:
    """What became of one message: who receives it, or that it was suspended because nobody does. An acknowledgement
    that nobody wants is neither."""

    message_id: uuid.UUID
    subscribers: tuple[str, ...]
    suspended: bool = False
    repeated: bool = field(default=False, compare=False)
    """Nothing was published now: this is the answer of the first publish under the same key."""


class MessageAgent:
    """Publishes over one connection. With a routing table it matches in memory, without one in the MessageBox."""

    def __init__(self, connection: Connection, host: Host, routing: RoutingTable | None = None) -> None:
        self._connection = connection
        self._host = host
        self._finder = IndexFinder(routing) if routing is not None else SqlFinder()
        self._wake_up = WakeUp(connection)

    def publish(self, given: Sequence[Message], *, key: str | None = None) -> list[Published]:
        """Publishes all of these messages or none of them."""
        ids = [message.message_id for message in given]
        if len(set(ids)) != len(ids):
            raise StateError("The same message is twice in one batch.", hint="Publish each message once.")
        unit = uuid.uuid4() if key is None else unit_for_key(key)
        while True:
            # In the loop: what changed meanwhile may be a property that is deployed now, or whom to believe.
            wrong = self._wrong(given)
            messages = self._believed(given)
            write = partial(self._write, messages=messages, wrong=wrong, unit=unit, key=key)
            try:
                published, hosts = transaction(self._connection, write)
                break
            except psycopg.Error as error:
                if error.sqlstate == _STALE:
                    self._finder.catch_up(self._connection)
                elif isinstance(error, psycopg.errors.UniqueViolation):
                    raise StateError(
                        "A message of this batch is in the MessageBox already.",
                        why="A stored message is immutable; publishing it again would be another message.",
                        hint="Publish a new Message, or pass key= to make a repeated publish harmless.",
                    ) from error
                elif error.sqlstate == _NOBODY:
                    failures = {row: routing_failure(_type_of(message)) for row, message in enumerate(messages)}
                    raise PublishFailed(_results(messages, failures)) from error
                else:
                    raise
            except _Behind:
                self._finder.catch_up(self._connection)
            except _Unroutable as refused:
                self._report(messages, refused.failures)
                raise PublishFailed(_results(messages, refused.failures)) from None
        self._wake_up.send(hosts)
        return published

    def _wrong(self, messages: Sequence[Message]) -> dict[int, BadValue]:
        """The messages with a value of another type than is deployed; refuses the batch if one is not to be kept."""
        wrong = wrong_types(self._finder.deployed(self._connection), messages)
        if any(not _is_to_be_kept(messages[row]) for row in wrong):
            raise PublishFailed(
                [PublishResult(message.message_id, wrong.get(row)) for row, message in enumerate(messages)]
            )
        return wrong

    def _believed(self, messages: Sequence[Message]) -> Sequence[Message]:
        if not any(names_originator(message.context) for message in messages):
            return messages
        login = self._finder.login(self._connection)
        return [replace(message, context=believed(message.context, login)) for message in messages]

    def _write(
        self,
        connection: Connection,
        messages: Sequence[Message],
        wrong: Mapping[int, BadValue],
        unit: uuid.UUID,
        key: str | None,
    ) -> tuple[list[Published], set[str]]:
        if key is not None:
            before = self._receipt(connection, unit)
            if before is not None:
                return before, set()
        batch_id = uuid.uuid4()
        # Whatever takes time comes before the routing lock, which everybody else would have to wait for.
        for message in messages:
            if not is_acknowledgement(message.context):
                _write_large_bodies(connection, message)
        found = self._find(connection, batch_id, messages, wrong)
        if not all(found.subscribers) and not self._finder.is_current(connection):
            raise _Behind
        unroutable = {row for row, subscribers in enumerate(found.subscribers) if not subscribers}
        # Nobody asked to be told: no failure, no report, no trace (NRF-11).
        dropped = {row for row in unroutable if row not in wrong and is_acknowledgement(messages[row].context)}
        unroutable -= dropped
        refused = {row for row in unroutable if not _is_to_be_kept(messages[row])}
        if refused:
            raise _Unroutable({row: _failure(messages[row], found, row) for row in refused})
        number = 0
        published: list[Published] = []
        hosts: set[str] = set()
        everybody = [one for subscribers in found.subscribers for one in subscribers]
        offered = [derive_id(unit, Kind.INSTANCE, n) for n in range(len(everybody))]
        instances = instances_for(connection, everybody, offered)
        for row, message in enumerate(messages):
            subscribers = found.subscribers[row]
            if row in unroutable:
                # Numbers after those of the subscribers, two each.
                numbered = len(everybody) + 2 * row
                self._suspend(connection, message, unit, numbered, wrong.get(row) or _failure(message, found, row))
            elif row not in dropped:
                if is_acknowledgement(message.context):
                    _write_large_bodies(connection, message)
                ids = [one.subscription_id for one in subscribers]
                own = instances[number : number + len(ids)]
                number += len(ids)
                _insert(connection, batch_id, found.version, message, ids, own)
                hosts.update(one.host_name for one in subscribers if one.started)
            published.append(
                Published(
                    message_id=message.message_id,
                    subscribers=tuple(sorted(one.service_name for one in subscribers)),
                    suspended=row in unroutable,
                )
            )
        self._finder.clear(connection, batch_id)
        clear_predicates(connection, batch_id, messages)
        if key is not None:
            _keep_answer(connection, unit, published)
        return published, hosts

    def _find(
        self, connection: Connection, batch_id: uuid.UUID, messages: Sequence[Message], wrong: Mapping[int, BadValue]
    ) -> Found:
        """The subscribers of each message; of one with a wrong value there are none."""
        if not wrong:
            return self._finder.find(connection, batch_id, messages)
        right = [row for row in range(len(messages)) if row not in wrong]
        found = self._finder.find(connection, batch_id, [messages[row] for row in right])
        subscribers = iter(found.subscribers)
        return replace(
            found,
            subscribers=[[] if row in wrong else next(subscribers) for row in range(len(messages))],
            barred={right[row]: hosts for row, hosts in found.barred.items()},
        )

    def _receipt(self, connection: Connection, unit: uuid.UUID) -> list[Published] | None:
        """Takes the receipt of this unit, or gives the answer of the publish that took it before."""
        taken = connection.execute(
            "SELECT 1 FROM take_receipts(ARRAY[%s::uuid], ARRAY[0], ARRAY['{}'::jsonb])", (unit,)
        ).fetchone()
        if taken is not None:
            return None
        row = connection.execute("SELECT outcome FROM read_receipts(ARRAY[%s::uuid])", (unit,)).fetchone()
        assert row is not None
        return [
            Published(
                message_id=uuid.UUID(one["message_id"]),
                subscribers=tuple(one["subscribers"]),
                suspended=one["suspended"],
                repeated=True,
            )
            for one in row[0]["published"]
        ]

    def _suspend(
        self,
        connection: Connection,
        message: Message,
        unit: uuid.UUID,
        number: int,
        failure: RoutingFailure | BadValue,
    ) -> None:
        """The message says to keep it. If nobody subscribes it is suspended as it is, to be published on resume; if a
        value is wrong no resume can help."""
        login = self._finder.login(connection) if names_originator(message.context) else Login()
        originator = stored_originator(message.context, login)
        write_message(connection, message, message.context.to_json(), originator=originator, with_fragments=False)
        instance_id = derive_id(unit, Kind.INSTANCE, number)
        row = SuspendedRow(
            message_id=message.message_id,
            instance_id=instance_id,
            host_id=self._host.host_id,
            service_class=ServiceClass.MESSAGING_IN_PROCESS,
            service_id=None,
            task=Task.PUBLISH,
            cause=Cause.FAILURE,
            error_code=failure.code,
            error_description=str(failure) if isinstance(failure, RoutingFailure) else failure.what,
            resumable=isinstance(failure, RoutingFailure),
        )
        reports = []
        if isinstance(failure, RoutingFailure):
            reports = [self._new_report(message, unit, number, failure, related=instance_id)]
        write_reports(connection, self._host, reports, suspended=[row], messages=[message])

    def _report(self, messages: Sequence[Message], failures: Mapping[int, RoutingFailure]) -> None:
        """The routing failure reports of a publish that was refused; the messages themselves are not kept."""
        unit = uuid.uuid4()  # not the publish's own: it may be tried, and refused, again
        reports = [
            self._new_report(messages[row], unit, row, failure, related=None)
            for row, failure in sorted(failures.items())
        ]
        transaction(self._connection, lambda c: write_reports(c, self._host, reports))

    def _new_report(
        self, message: Message, unit: uuid.UUID, number: int, failure: RoutingFailure, *, related: uuid.UUID | None
    ) -> RoutingFailureReport:
        return RoutingFailureReport(
            message_id=derive_id(unit, Kind.REPORT, number),
            instance_id=derive_id(unit, Kind.INSTANCE, number + 1),
            related_instance_id=related,
            host_id=self._host.host_id,
            context=message.context,
            description=failure.what,
        )


class _Behind(Exception):
    """Nobody was found, but not everybody is known yet."""


class _Unroutable(Exception):
    def __init__(self, failures: Mapping[int, RoutingFailure]) -> None:
        super().__init__(failures)
        self.failures = failures


def _insert(
    connection: Connection,
    batch_id: uuid.UUID,
    version: int,
    message: Message,
    subscription_ids: list[int],
    instance_ids: list[uuid.UUID],
) -> None:
    body = message.body
    part_ids = [part.part_id for part in message.parts]
    head = (batch_id, version, message.message_id, message.context.to_json(), subscription_ids, instance_ids, part_ids)
    if body is None:
        connection.execute(_INSERT, (*head, None, None, None, None, None, None))
        return
    connection.execute(
        _INSERT, (*head, body.part_id, body.name, body.content_type, body.charset, body.body.size, _inline(body))
    )
    for part in message.parts:
        if part is not body:
            connection.execute(
                _INSERT_PART, (part.part_id, part.name, part.content_type, part.charset, part.body.size, _inline(part))
            )


def _write_large_bodies(connection: Connection, message: Message) -> None:
    for part in message.parts:
        if part.body.size > FRAGMENT_SIZE:
            write_fragments(connection, part.part_id, part.body)


def _inline(part: Part) -> bytes | None:
    return None if part.body.size > FRAGMENT_SIZE else part.data


def _keep_answer(connection: Connection, unit: uuid.UUID, published: Sequence[Published]) -> None:
    answer = [
        {"message_id": str(one.message_id), "subscribers": one.subscribers, "suspended": one.suspended}
        for one in published
    ]
    connection.execute(
        "SELECT keep_outcome(%s, %s::jsonb)",
        (unit, json.dumps({"published": answer, "last": len(answer), "done": True})),
    )


def _results(messages: Sequence[Message], failures: Mapping[int, RoutingFailure]) -> list[PublishResult]:
    return [
        PublishResult(message_id=message.message_id, failure=failures.get(row)) for row, message in enumerate(messages)
    ]


def _is_to_be_kept(message: Message) -> bool:
    return message.context.get(BTS.SuspendMessageOnRoutingFailure) is True


def _failure(message: Message, found: Found, row: int) -> RoutingFailure:
    return routing_failure(_type_of(message), message.context.predicates, found.barred.get(row, ()))


def _type_of(message: Message) -> object:
    return message.context.get(BTS.MessageType)
