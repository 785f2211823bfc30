"""Finding the subscribers of messages in the direct lane: in memory, or by the MessageBox itself."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from postroom.agent.authorised import Barred
from postroom.agent.convoys import Convoy, locate_instances
from postroom.agent.correlation import correlations_of, find_waiting, values_of
from postroom.agent.originator import Login, read_login
from postroom.agent.routing import RoutingTable, Subscriber, read_property_lists
from postroom.errors import BadValue
from postroom.filters.authorisation import NOTHING_TO_SHOW, comparable_text, may_receive
from postroom.message import Message
from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement
from postroom.messagebox.stored_values import to_stored
from postroom.properties import Property
from postroom.values import Value, ValueType


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSubscriber:
    """A subscription that a message meets."""

    subscription_id: int
    service_name: str
    host_name: str
    started: bool
    #: The convoy that the message belongs to, if it does.
    convoy: Convoy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The subscribers of each message, as of a routing version."""

    version: int
    subscribers: list[list[FoundSubscriber]]
    barred: Barred = field(default_factory=dict)
    """For messages that lost subscribers: the hosts that may not receive them, by the message's number."""


class Finder(Protocol):
    """Finds subscribers inside the publish transaction."""

    def deployed(self, connection: Connection) -> Mapping[str, ValueType]: ...

    def login(self, connection: Connection) -> Login: ...

    def find(self, connection: Connection, batch_id: uuid.UUID, messages: Sequence[Message]) -> Found: ...

    def is_current(self, connection: Connection) -> bool: ...

    def catch_up(self, connection: Connection) -> None: ...

    def clear(self, connection: Connection, batch_id: uuid.UUID) -> None:
        """The batch's transient properties go."""
        ...


class IndexFinder:
    """Matches with a routing table in memory, for publishers that stay."""

    def __init__(self, routing: RoutingTable) -> None:
        self._routing = routing

    def deployed(self, connection: Connection) -> Mapping[str, ValueType]:
        if not self._routing.version:
            self._routing.catch_up(connection)
        return self._routing.value_types

    def login(self, connection: Connection) -> Login:
        return self._routing.login

    def find(self, connection: Connection, batch_id: uuid.UUID, messages: Sequence[Message]) -> Found:
        routing = self._routing
        promoted = [message.context.promoted for message in messages]
        found = [[routing.subscribers[one] for one in routing.match_one(values)] for values in promoted]
        if routing.correlation_types:
            for subscriber, rows in find_waiting(connection, correlations_of(promoted, routing)):
                for row in rows:
                    found[row].append(subscriber)
        barred: dict[int, set[str]] = {}
        for row, message in enumerate(messages):
            if message.context.predicates:
                found[row], refused = authorised(routing, message, found[row])
                if refused:
                    barred[row] = {routing.spelled_hosts.get(one.host_id, "") for one in refused}
        insert_predicates(connection, batch_id, messages)
        return Found(
            version=routing.version,
            barred=barred,
            subscribers=[
                [
                    FoundSubscriber(
                        subscription_id=one.subscription_id,
                        service_name=one.service_name,
                        # A host that is not known yet is one that routing does not know either: found again, then.
                        host_name=routing.host_names.get(one.host_id, ""),
                        started=one.started,
                        convoy=convoy_of(values, one.convoy_set_id, routing.convoy_sets),
                    )
                    for one in subscribers
                ]
                for subscribers, values in zip(found, promoted, strict=True)
            ],
        )

    def is_current(self, connection: Connection) -> bool:
        row = connection.execute("SELECT version FROM routing_version").fetchone()
        return row is not None and row[0] == self._routing.version

    def catch_up(self, connection: Connection) -> None:
        self._routing.catch_up(connection)

    def clear(self, connection: Connection, batch_id: uuid.UUID) -> None:
        pass


def authorised(
    routing: RoutingTable, message: Message, found: Sequence[Subscriber]
) -> tuple[list[Subscriber], list[Subscriber]]:
    """Those of the subscribers whose hosts may receive the message, and the others."""
    predicates = message.context.predicates
    kept: list[Subscriber] = []
    refused: list[Subscriber] = []
    for one in found:
        shown = routing.application_properties.get(one.host_id, NOTHING_TO_SHOW)
        (kept if may_receive(predicates, shown) else refused).append(one)
    return kept, refused


class SqlFinder:
    """Asks the MessageBox (find_subscriptions), for publishers without a warm index: the command line, a one-off."""

    def deployed(self, connection: Connection) -> Mapping[str, ValueType]:
        return {
            key: ValueType(value_type)
            for key, value_type in connection.execute("SELECT key, value_type FROM properties")
        }

    def login(self, connection: Connection) -> Login:
        return read_login(connection)

    def find(self, connection: Connection, batch_id: uuid.UUID, messages: Sequence[Message]) -> Found:
        insert_properties(connection, batch_id, messages)
        insert_predicates(connection, batch_id, messages)
        # Under the lock from here on: what is found cannot change before the publish commits.
        row = connection.execute("SELECT version FROM lock_routing()").fetchone()
        assert row is not None
        found: dict[uuid.UUID, list[FoundSubscriber]] = {message.message_id: [] for message in messages}
        promoted = {message.message_id: message.context.promoted for message in messages}
        numbers = {message.message_id: number for number, message in enumerate(messages)}
        barred: defaultdict[int, set[str]] = defaultdict(set)
        rows = connection.execute(statement("queries/find_subscribers"), {"batch": batch_id}).fetchall()
        convoy_sets = read_property_lists(connection)["convoy"] if any(one[-1] is not None for one in rows) else {}
        for message_id, subscription_id, name, host, started, may, convoy_set_id in rows:
            if not may:
                barred[numbers[message_id]].add(host)
                continue
            found[message_id].append(
                FoundSubscriber(
                    subscription_id=subscription_id,
                    service_name=name,
                    host_name=host.lower(),
                    started=started,
                    convoy=convoy_of(promoted[message_id], convoy_set_id, convoy_sets),
                )
            )
        return Found(version=row[0], subscribers=[found[message.message_id] for message in messages], barred=barred)

    def is_current(self, connection: Connection) -> bool:
        return True

    def catch_up(self, connection: Connection) -> None:
        pass

    def clear(self, connection: Connection, batch_id: uuid.UUID) -> None:
        connection.execute("DELETE FROM message_properties WHERE batch_id = %s", (batch_id,))


def convoy_of(
    promoted: Mapping[str, Value], convoy_set_id: int | None, convoy_sets: Mapping[int, Sequence[str]]
) -> Convoy | None:
    """The convoy of a message that met a subscription with this convoy set; none if it lacks one of the properties."""
    if convoy_set_id is None or (values := values_of(promoted, convoy_sets[convoy_set_id])) is None:
        return None
    return Convoy(convoy_set_id=convoy_set_id, values=values)


def instances_for(
    connection: Connection, subscribers: Sequence[FoundSubscriber], offered: Sequence[uuid.UUID]
) -> list[uuid.UUID]:
    """The instance for each subscriber: the one that is offered, or the one that its convoy has already.

    Inside the publish transaction; for all messages of a batch at once, so that keys are locked in one order."""
    instances = list(offered)
    convoys = {number: one.convoy for number, one in enumerate(subscribers) if one.convoy is not None}
    located = locate_instances(connection, list(convoys.values()), [instances[number] for number in convoys])
    for number, instance_id in zip(convoys, located, strict=True):
        instances[number] = instance_id
    return instances


def insert_properties(connection: Connection, batch_id: uuid.UUID, messages: Sequence[Message]) -> None:
    """The promoted values of a batch into the transient table, for find_subscriptions to join."""
    with connection.cursor() as cursor:
        cursor.executemany(
            statement("queries/insert_message_property"),
            [
                (batch_id, message.message_id, *to_stored(value), key)
                for message in messages
                for key, value in message.context.promoted.items()
            ],
        )


def insert_predicates(connection: Connection, batch_id: uuid.UUID, messages: Sequence[Message]) -> None:
    """The message predicates of a batch, for evaluate_subscriptions to compare; nothing if there are none."""
    rows = [
        (batch_id, message.message_id, key, comparable_text(value))
        for message in messages
        for key, value in message.context.predicates
    ]
    if rows:
        with connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO message_predicates (batch_id, message_id, property_key, value) VALUES (%s, %s, %s, %s)"
                " ON CONFLICT DO NOTHING",
                rows,
            )


def clear_predicates(connection: Connection, batch_id: uuid.UUID, messages: Sequence[Message]) -> None:
    """What ``insert_predicates`` wrote goes."""
    if any(message.context.predicates for message in messages):
        connection.execute("DELETE FROM message_predicates WHERE batch_id = %s", (batch_id,))


def wrong_types(deployed: Mapping[str, ValueType], messages: Sequence[Message]) -> dict[int, BadValue]:
    """The messages of a batch with a value, promoted or asked of receivers, of another type than its property is
    deployed with; by their place in the batch, each with what is wrong."""
    found = {}
    for row, message in enumerate(messages):
        context = message.context
        # Without the values: what a message asks for is content of the message.
        given = [("A promoted value", key, type(value).__name__) for key, value in context.promoted.items()]
        given += [("What it asks of its receivers", key, type(value).__name__) for key, value in context.predicates]
        wrong = {
            f"{Property.from_key(key, wanted).dotted} is deployed as {wanted.python_type.__name__}, not {of}": what
            for what, key, of in given
            if (wanted := deployed.get(key)) is not None and wanted.python_type.__name__ != of
        }
        if wrong:
            found[row] = BadValue(
                f"{next(iter(wrong.values()))} has another type than its property: {'; '.join(wrong)}.",
                hint="Give each value the type that its property is deployed with.",
            )
    return found
