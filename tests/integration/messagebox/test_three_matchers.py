"""The evaluator, the index and find_subscriptions have the same results, for ACC-05 and for generated filters."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import psycopg
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from postroom.agent.routing.matching import ProcedureMatcher
from postroom.agent.routing.table import Routing, RoutingTable
from postroom.filters.columns import build_columns
from postroom.filters.evaluate import matches
from postroom.filters.expression import Filter
from postroom.message import Context, Message
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection
from postroom.messagebox.subscriptions import ServiceSubscriptions, SubscribingService, deploy_property
from postroom.properties import Property
from postroom.values import Value
from tests.support.box import Box
from tests.support.catalogue import COMPARISONS
from tests.support.filter_strategies import PROPERTIES, contexts, filters

Matches = list[list[int]]


def deploy(box: Box, properties: Sequence[Property]) -> None:
    with box.connection.transaction():
        for prop in properties:
            deploy_property(box.connection, prop.key, prop.value_type)


def subscribe(box: Box, subscribed: Sequence[Filter]) -> list[int]:
    """Store and start a subscription for each filter. Return their ids."""
    ids = [
        ServiceSubscriptions(box.host(), ServiceClass.MESSAGING_IN_PROCESS).activate(
            box.connection, SubscribingService(service_id=uuid.uuid4(), name=f"S{number}"), filter
        )
        for number, filter in enumerate(subscribed)
    ]
    for id in ids:
        box.connection.execute("SELECT set_subscription_state(%s, 'started')", (id,))
    return ids


def match_by_procedure(connection: Connection, batch: Sequence[Context]) -> Matches:
    messages = [Message(context=context) for context in batch]
    matches = ProcedureMatcher().match(connection, messages)
    return _group_by_message(matches.rows, matches.subscription_ids, len(batch))


def match_by_index(routing: Routing, batch: Sequence[Context]) -> Matches:
    """Match all messages at once, as the streaming lane does."""
    columns = build_columns([context.promoted for context in batch])
    [piece] = routing.match_in_pieces(columns, len(batch))
    return _group_by_message(piece.rows, piece.ids, len(batch))


def _group_by_message(rows: npt.NDArray[np.int64], ids: npt.NDArray[np.int64], count: int) -> Matches:
    found: Matches = [[] for _ in range(count)]
    for row, id in zip(rows.tolist(), ids.tolist(), strict=True):
        found[row].append(id)
    return found


def match_one_by_one(routing: Routing, batch: Sequence[Context]) -> Matches:
    """Match each message separately, as the direct lane does."""
    return [routing.index.match_one(context.promoted) for context in batch]


@contextmanager
def roll_back(connection: Connection) -> Iterator[None]:
    """Roll back all changes at the end."""
    with connection.transaction() as transaction:
        yield
        raise psycopg.Rollback(transaction)


def load_routing(connection: Connection) -> Routing:
    return RoutingTable().load(connection)


def test_the_three_matchers_agree_on_the_catalogue_of_filters(box: Box) -> None:
    deploy(box, [comparison.prop for comparison in COMPARISONS])
    with roll_back(box.connection):
        ids = subscribe(box, [comparison.filter for comparison in COMPARISONS])
        cases = [(id, case) for id, comparison in zip(ids, COMPARISONS, strict=True) for case in comparison.cases]
        batch = [case.context for _, case in cases]
        expected = [[id] if case.holds else [] for id, case in cases]
        routing = load_routing(box.connection)
        assert match_by_procedure(box.connection, batch) == expected
        assert match_by_index(routing, batch) == expected
        assert match_one_by_one(routing, batch) == expected


@settings(
    max_examples=40,
    # Shrinking with a database takes minutes, and the generated examples are small.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    subscribed=st.lists(filters(), min_size=1, max_size=12),
    promoted=st.lists(contexts(), min_size=1, max_size=12),
    written=st.lists(contexts(), min_size=12, max_size=12),
)
def test_the_three_matchers_agree_on_a_mixed_batch(
    box: Box, subscribed: list[Filter], promoted: list[dict[str, Value]], written: list[dict[str, Value]]
) -> None:
    """PRED-14."""
    deploy(box, PROPERTIES)
    batch = [
        Context(one, {key: value for key, value in other.items() if key not in one})
        for one, other in zip(promoted, written, strict=False)
    ]
    with roll_back(box.connection):
        ids = subscribe(box, subscribed)
        expected = [
            [id for id, filter in zip(ids, subscribed, strict=True) if matches(filter, context.promoted)]
            for context in batch
        ]
        routing = load_routing(box.connection)
        assert match_by_procedure(box.connection, batch) == expected
        assert match_by_index(routing, batch) == expected
        assert match_one_by_one(routing, batch) == expected
