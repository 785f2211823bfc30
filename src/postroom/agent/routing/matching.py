"""Find the subscribers of a batch that may receive its messages.

Activation subscriptions are matched in memory, instance subscriptions in the MessageBox. The result has the convoys of
the matches. The command line, a short-lived connection, and a transaction that has changed subscriptions itself have
no index in memory: for them the MessageBox matches all subscriptions.
"""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections import ChainMap, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from postroom.agent.originator import Login, read_login
from postroom.agent.routing.correlation import (
    Convoy,
    find_correlations,
    find_instance_subscribers,
    get_complete_values,
    to_value_keys,
)
from postroom.agent.routing.table import RoutingTable, Subscriber, read_property_lists
from postroom.errors import RoutingFailure
from postroom.filters.authorisation import NO_APPLICATION_PROPERTIES, MessagePredicate, comparable_text, may_receive
from postroom.filters.columns import Columns, build_columns
from postroom.message import Message
from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement
from postroom.messagebox.storage.stored_values import to_stored
from postroom.properties import dotted_name, split_key
from postroom.values import ValueType

Predicates = frozenset[MessagePredicate]


@dataclass(frozen=True, kw_only=True)
class MatchResult:
    """Pairs of a message (its row in the batch) and a subscription, ordered by both, at one routing version."""

    version: int
    rows: npt.NDArray[np.int64]
    subscription_ids: npt.NDArray[np.int64]
    subscribers: Mapping[int, Subscriber]
    host_names: Mapping[int, str]
    """In lower case, as queues are named."""
    convoys: Mapping[int, Convoy] = field(default_factory=dict)
    """The convoys of pairs, by the number of the pair."""
    unauthorised_hosts: Mapping[int, Collection[str]] = field(default_factory=dict)
    """The hosts that subscribe to a message but may not receive it, by the row of the message."""

    def select(self, kept: npt.NDArray[np.bool_]) -> MatchResult:
        """Return the pairs that are kept, with new numbers."""
        if kept.all():
            return self
        number = np.cumsum(kept) - 1
        convoys = {int(number[pair]): convoy for pair, convoy in self.convoys.items() if kept[pair]}
        return replace(self, rows=self.rows[kept], subscription_ids=self.subscription_ids[kept], convoys=convoys)

    def with_rows(self, row_of: Sequence[int]) -> MatchResult:
        """Return the same pairs for another numbering of the messages."""
        hosts = {row_of[row]: hosts for row, hosts in self.unauthorised_hosts.items()}
        return replace(self, rows=np.array(row_of, dtype=np.int64)[self.rows], unauthorised_hosts=hosts)


def match_batch(
    connection: Connection,
    routing: RoutingTable,
    columns: Columns,
    rows: int,
    predicates: Sequence[Predicates],
    predicates_of: npt.NDArray[np.int64] | None = None,
) -> MatchResult:
    """Return all matches of a batch. Queries the MessageBox only if instances wait by properties of the batch.

    ``predicates_of`` has the number of its ``predicates`` for each row. By default each row has its own."""
    found, ids = routing.match(columns, rows)
    subscribers: Mapping[int, Subscriber] = routing.subscribers
    if rows and routing.correlation_types:
        waiting = find_instance_subscribers(connection, find_correlations(columns, rows, routing))
        if waiting:
            subscribers = ChainMap({one.subscription_id: one for one, _ in waiting}, routing.subscribers)
            found = np.concatenate([found, *(np.array(matched) for _, matched in waiting)])
            ids = np.concatenate([ids, *(np.full(len(matched), one.subscription_id) for one, matched in waiting)])
            order = np.lexsort((ids, found))
            found, ids = found[order], ids[order]
    matches = MatchResult(
        version=routing.version,
        rows=found,
        subscription_ids=ids,
        subscribers=subscribers,
        host_names=routing.host_names,
        convoys=find_convoys(columns, rows, found, ids, subscribers, routing.convoy_sets, routing.value_types),
    )
    if any(predicates) and len(found):
        return _authorise(matches, routing, predicates, np.arange(rows) if predicates_of is None else predicates_of)
    return matches


def find_convoys(
    columns: Columns,
    rows: int,
    found: npt.NDArray[np.int64],
    ids: npt.NDArray[np.int64],
    subscribers: Mapping[int, Subscriber],
    convoy_sets: Mapping[int, Sequence[str]],
    value_types: Mapping[str, ValueType],
) -> dict[int, Convoy]:
    """Return the convoys of pairs, by the number of the pair. A message that lacks a property is in no convoy."""
    convoys: dict[int, Convoy] = {}
    for subscription_id in np.unique(ids).tolist() if convoy_sets else ():
        convoy_set_id = subscribers[subscription_id].convoy_set_id
        if convoy_set_id is None:
            continue
        values = to_value_keys(columns, convoy_sets[convoy_set_id], rows, value_types)
        if values is None:
            continue
        for pair in np.flatnonzero(ids == subscription_id).tolist():
            if (complete := get_complete_values(values[found[pair]])) is not None:
                convoys[pair] = Convoy(convoy_set_id=convoy_set_id, values=complete)
    return convoys


def _authorise(
    matches: MatchResult,
    routing: RoutingTable,
    predicates: Sequence[Predicates],
    predicates_of: npt.NDArray[np.int64],
) -> MatchResult:
    """Return the pairs whose hosts have the application properties that the messages require (SEC-01 … 06)."""
    distinct = list(dict.fromkeys(predicates))
    kind = np.array([distinct.index(one) for one in predicates])[predicates_of[matches.rows]]
    subscriptions, subscription_of = np.unique(matches.subscription_ids, return_inverse=True)
    hosts = [matches.subscribers[one].host_id for one in subscriptions.tolist()]
    shown = [routing.application_properties.get(one, NO_APPLICATION_PROPERTIES) for one in hosts]
    table = np.array([[may_receive(one, properties) for properties in shown] for one in distinct])
    is_allowed: npt.NDArray[np.bool_] = table[kind, subscription_of]
    unauthorised: defaultdict[int, set[str]] = defaultdict(set)
    for pair in np.flatnonzero(~is_allowed).tolist():
        name = routing.host_display_names.get(hosts[int(subscription_of[pair])], "")
        unauthorised[int(matches.rows[pair])].add(name)
    return replace(matches.select(is_allowed), unauthorised_hosts=unauthorised)


def routing_failure(
    message_type: object, predicates: Predicates = frozenset(), unauthorised_hosts: Collection[str] = ()
) -> RoutingFailure:
    """Return the failure of a message that has no subscriber, or none that may receive it (NRF-17)."""
    of_type = f" of type {message_type}" if message_type else ""
    if not unauthorised_hosts:
        return RoutingFailure(f"The published message{of_type} could not be routed because no subscribers were found.")
    # Without the values: operators read this, and the values are content of the message.
    required = ", ".join(sorted({dotted_name(*split_key(key)) for key, _ in predicates}))
    hosts = ", ".join(sorted(unauthorised_hosts))
    names = f"the host {hosts} does" if len(unauthorised_hosts) == 1 else f"the hosts {hosts} do"
    return RoutingFailure(
        f"The published message{of_type} could not be routed because no host that subscribes is authorised to "
        f"receive it.",
        why=f"It requires a value of {required} that {names} not have.",
        hint="Declare it as an application property of a host (app.host(..., properties=...)) and resume the instance.",
    )


class Matcher(Protocol):
    """Finds the subscribers of messages, inside the transaction that publishes them."""

    def load(self, connection: Connection) -> None:
        """Read the subscriptions, unless they were read before. Called outside of any transaction."""
        return

    def catch_up(self, connection: Connection) -> None:
        """Read the subscriptions that have changed."""
        return

    @abstractmethod
    def value_types(self, connection: Connection) -> Mapping[str, ValueType]:
        """Return the types of the deployed properties, by property key."""

    @abstractmethod
    def login(self, connection: Connection) -> Login:
        """Return the login of the publisher."""

    @abstractmethod
    def match(self, connection: Connection, messages: Sequence[Message]) -> MatchResult:
        """Return the subscribers that may receive the messages."""


class IndexMatcher(Matcher):
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


class ProcedureMatcher(Matcher):
    """Matches in the MessageBox (find_subscriptions), under the routing lock."""

    def value_types(self, connection: Connection) -> Mapping[str, ValueType]:
        rows = connection.execute("SELECT key, value_type FROM properties")
        return {key: ValueType(value_type) for key, value_type in rows}

    def login(self, connection: Connection) -> Login:
        return read_login(connection)

    def match(self, connection: Connection, messages: Sequence[Message]) -> MatchResult:
        batch_id = uuid.uuid4()
        _insert_criteria(connection, batch_id, messages)
        # Under the lock the subscriptions cannot change before the publish commits.
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
    """Return the promoted values in columns. Properties that are not deployed match no filter and may have any type."""
    if len(messages) == 1:
        return messages[0].context.promoted
    promoted = [message.context.promoted for message in messages]
    return build_columns([{key: value for key, value in one.items() if key in value_types} for one in promoted])


def _insert_criteria(connection: Connection, batch_id: uuid.UUID, messages: Sequence[Message]) -> None:
    """Write the promoted values and the message predicates of a batch to the transient tables of find_subscriptions."""
    with connection.cursor() as cursor:
        cursor.executemany(
            statement("queries/insert_message_property"),
            [
                (batch_id, message.message_id, *to_stored(value), key)
                for message in messages
                for key, value in message.context.promoted.items()
            ],
        )
        cursor.executemany(
            statement("queries/insert_message_predicate"),
            [
                (batch_id, message.message_id, key, comparable_text(value))
                for message in messages
                for key, value in message.context.predicates
            ],
        )
