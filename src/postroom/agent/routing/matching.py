"""Find the subscribers of a batch that may receive its messages.

Activation subscriptions are matched in memory, instance subscriptions in the MessageBox. The result has the convoys of
the matches. The command line, a short-lived connection, and a transaction that has changed subscriptions itself have
no index in memory: for them the MessageBox matches all subscriptions.
"""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from postroom.agent.originator import PublisherLogin, read_login
from postroom.agent.routing.batch_matches import MatchResult, Predicates, find_convoys, match_batch
from postroom.agent.routing.table import Routing, Subscriber
from postroom.errors import RoutingFailure
from postroom.filters.authorisation import comparable_text
from postroom.filters.columns import Columns, build_columns
from postroom.message import Message
from postroom.messagebox.configuration.properties import read_property_types
from postroom.messagebox.connection import Connection
from postroom.messagebox.routing import find_subscribers, read_property_lists
from postroom.messagebox.storage.stored_values import to_stored
from postroom.properties import dotted_name, split_key
from postroom.values import ValueType


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

    @abstractmethod
    def value_types(self, connection: Connection) -> Mapping[str, ValueType]:
        """Return the types of the deployed properties, by property key."""

    @abstractmethod
    def login(self, connection: Connection) -> PublisherLogin:
        """Return the login of the publisher."""

    @abstractmethod
    def match(self, connection: Connection, messages: Sequence[Message]) -> MatchResult:
        """Return the subscribers that may receive the messages."""


class IndexMatcher(Matcher):
    """Matches in memory."""

    def __init__(self, routing: Routing) -> None:
        self._routing = routing

    def value_types(self, connection: Connection) -> Mapping[str, ValueType]:
        return self._routing.value_types

    def login(self, connection: Connection) -> PublisherLogin:
        return self._routing.login

    def match(self, connection: Connection, messages: Sequence[Message]) -> MatchResult:
        columns = _columns(messages, self._routing.value_types)
        predicates = [message.context.predicates for message in messages]
        return match_batch(connection, self._routing, columns, len(messages), predicates)


class ProcedureMatcher(Matcher):
    """Matches in the MessageBox (find_subscriptions), under the routing lock."""

    def value_types(self, connection: Connection) -> Mapping[str, ValueType]:
        return read_property_types(connection)

    def login(self, connection: Connection) -> PublisherLogin:
        return read_login(connection)

    def match(self, connection: Connection, messages: Sequence[Message]) -> MatchResult:
        contexts = [(message.message_id, message.context) for message in messages]
        version, found = find_subscribers(
            connection,
            uuid.uuid4(),
            [(one, to_stored(value), key) for one, context in contexts for key, value in context.promoted.items()],
            [(one, key, comparable_text(value)) for one, context in contexts for key, value in context.predicates],
        )
        number_of = {message.message_id: number for number, message in enumerate(messages)}
        subscribers: dict[int, Subscriber] = {}
        host_names: dict[int, str] = {}
        pairs: list[tuple[int, int]] = []
        unauthorised: defaultdict[int, set[str]] = defaultdict(set)
        for message_id, is_allowed, host, *of_subscription in found:
            if not is_allowed:
                unauthorised[number_of[message_id]].add(host)
                continue
            subscriber = Subscriber.from_row(of_subscription)
            subscribers[subscriber.subscription_id] = subscriber
            host_names[subscriber.host_id] = host.lower()
            pairs.append((number_of[message_id], subscriber.subscription_id))
        rows, ids = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2).T
        matches = MatchResult(
            version=version,
            rows=rows,
            subscription_ids=ids,
            subscribers=subscribers,
            host_names=host_names,
            unauthorised_hosts=unauthorised,
        )
        if all(subscriber.convoy_set_id is None for subscriber in subscribers.values()):
            return matches
        sets, value_types = read_property_lists(connection)["convoy"], self.value_types(connection)
        columns = _columns(messages, value_types)
        convoys = find_convoys(columns, len(messages), rows, ids, subscribers, sets, value_types)
        return replace(matches, convoys=convoys)


def _columns(messages: Sequence[Message], value_types: Mapping[str, ValueType]) -> Columns:
    """Return the promoted values in columns. Properties that are not deployed match no filter and may have any type."""
    promoted = [message.context.promoted for message in messages]
    if promoted and all(other == promoted[0] for other in promoted[1:]):
        # One message, or messages to the same port. One value for all of them needs no array.
        return promoted[0]
    return build_columns([{key: value for key, value in values.items() if key in value_types} for values in promoted])
