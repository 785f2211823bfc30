"""Matching single messages: with an index in memory, or by the MessageBox itself.

A publisher that stays keeps an index. The command line, a one-off connection, and a transaction that has changed
subscriptions itself, ask the MessageBox.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from postroom.agent.originator import Login, read_login
from postroom.agent.routing.matching import MatchResult, find_convoys, match_batch
from postroom.agent.routing.table import RoutingTable, Subscriber, read_property_lists
from postroom.filters.authorisation import comparable_text
from postroom.filters.columns import Columns, columns_of
from postroom.message import Message
from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement
from postroom.messagebox.storage.stored_values import to_stored
from postroom.values import ValueType


class Matcher(Protocol):
    """Finds the subscribers of messages, inside the transaction that publishes them."""

    def load(self, connection: Connection) -> None:
        """Reads the subscriptions, unless they were read before. Outside of any transaction."""
        ...

    def catch_up(self, connection: Connection) -> None:
        """Reads what has changed since."""
        ...

    def value_types(self, connection: Connection) -> Mapping[str, ValueType]:
        """The deployed properties."""
        ...

    def login(self, connection: Connection) -> Login: ...

    def match(self, connection: Connection, messages: Sequence[Message]) -> MatchResult: ...


class IndexMatcher:
    """Matches with a routing table in memory."""

    def __init__(self, routing: RoutingTable) -> None:
        self._routing = routing

    def load(self, connection: Connection) -> None:
        if not self._routing.version:
            self._routing.catch_up(connection)

    def catch_up(self, connection: Connection) -> None:
        self._routing.catch_up(connection)

    def value_types(self, connection: Connection) -> Mapping[str, ValueType]:
        return self._routing.value_types

    def login(self, connection: Connection) -> Login:
        return self._routing.login

    def match(self, connection: Connection, messages: Sequence[Message]) -> MatchResult:
        columns = _columns(messages, self._routing.value_types)
        predicates = [message.context.predicates for message in messages]
        return match_batch(connection, self._routing, columns, len(messages), predicates)


class ProcedureMatcher:
    """Asks the MessageBox (find_subscriptions), under the routing lock."""

    def load(self, connection: Connection) -> None:
        pass

    def catch_up(self, connection: Connection) -> None:
        pass

    def value_types(self, connection: Connection) -> Mapping[str, ValueType]:
        rows = connection.execute("SELECT key, value_type FROM properties")
        return {key: ValueType(value_type) for key, value_type in rows}

    def login(self, connection: Connection) -> Login:
        return read_login(connection)

    def match(self, connection: Connection, messages: Sequence[Message]) -> MatchResult:
        batch_id = uuid.uuid4()
        _insert_properties(connection, batch_id, messages)
        _insert_predicates(connection, batch_id, messages)
        # Under the lock from here on: what is found cannot change before the publish commits.
        row = connection.execute("SELECT version FROM lock_routing()").fetchone()
        assert row is not None
        number_of = {message.message_id: number for number, message in enumerate(messages)}
        subscribers: dict[int, Subscriber] = {}
        host_names: dict[int, str] = {}
        pairs: list[tuple[int, int]] = []
        unauthorised: defaultdict[int, set[str]] = defaultdict(set)
        for message_id, is_allowed, host, *of_subscription in connection.execute(
            statement("queries/find_subscribers"), {"batch": batch_id}
        ):
            if not is_allowed:
                unauthorised[number_of[message_id]].add(host)
                continue
            subscriber = Subscriber.from_row(of_subscription)
            subscribers[subscriber.subscription_id] = subscriber
            host_names[subscriber.host_id] = host.lower()
            pairs.append((number_of[message_id], subscriber.subscription_id))
        for table in ("message_properties", "message_predicates"):
            connection.execute(f"DELETE FROM {table} WHERE batch_id = %s", (batch_id,))
        rows, ids = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2).T
        matches = MatchResult(
            version=row[0],
            rows=rows,
            subscription_ids=ids,
            subscribers=subscribers,
            host_names=host_names,
            unauthorised_hosts=unauthorised,
        )
        if all(one.convoy_set_id is None for one in subscribers.values()):
            return matches
        sets, value_types = read_property_lists(connection)["convoy"], self.value_types(connection)
        columns = _columns(messages, value_types)
        convoys = find_convoys(columns, len(messages), rows, ids, subscribers, sets, value_types)
        return replace(matches, convoys=convoys)


def _columns(messages: Sequence[Message], value_types: Mapping[str, ValueType]) -> Columns:
    """The promoted values. Those of properties that are not deployed meet no filter, and may have any types."""
    if len(messages) == 1:
        return messages[0].context.promoted
    promoted = [message.context.promoted for message in messages]
    return columns_of([{key: value for key, value in one.items() if key in value_types} for one in promoted])


def _insert_properties(connection: Connection, batch_id: uuid.UUID, messages: Sequence[Message]) -> None:
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


def _insert_predicates(connection: Connection, batch_id: uuid.UUID, messages: Sequence[Message]) -> None:
    """The message predicates of a batch, to be compared with the application properties of hosts."""
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO message_predicates (batch_id, message_id, property_key, value) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT DO NOTHING",
            [
                (batch_id, message.message_id, key, comparable_text(value))
                for message in messages
                for key, value in message.context.predicates
            ],
        )
