"""The evaluator, the index and find_subscriptions say the same: for the catalogue (ACC-05), and for whatever comes."""

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
from postroom.agent.routing.table import RoutingTable
from postroom.filters.columns import build_columns
from postroom.filters.evaluate import matches
from postroom.filters.expression import Filter
from postroom.message import Context, Message
from postroom.messagebox.configuration import ServiceClass
from postroom.messagebox.connection import Connection
from postroom.messagebox.subscriptions import create_subscription, deploy_property
from postroom.properties import Property
from postroom.values import Value
from tests.support.box import Box
from tests.support.catalogue import COMPARISONS
from tests.support.filter_strategies import PROPERTIES, contexts, filters

Found = list[list[int]]


def deploy(box: Box, properties: Sequence[Property]) -> None:
    with box.connection.transaction():
        for prop in properties:
            deploy_property(box.connection, prop.key, prop.value_type)


def subscribe(box: Box, subscribed: Sequence[Filter]) -> list[int]:
    """Stored subscriptions, started."""
    ids = [
        create_subscription(
            box.connection,
            box.host(),
            service_class=ServiceClass.MESSAGING_IN_PROCESS,
            service_id=uuid.uuid4(),
            service_name=f"S{number}",
            filter=filter,
            priority=5,
        )
        for number, filter in enumerate(subscribed)
    ]
    for id in ids:
        box.connection.execute("SELECT set_subscription_state(%s, 1::smallint)", (id,))
    return ids


def by_function(connection: Connection, batch: Sequence[Context]) -> Found:
    messages = [Message(context=context) for context in batch]
    matches = ProcedureMatcher().match(connection, messages)
    return _by_message(matches.rows, matches.subscription_ids, len(batch))


def by_index(routing: RoutingTable, batch: Sequence[Context]) -> Found:
    """As the streaming lane matches: all at once."""
    return _by_message(*routing.match(build_columns([context.promoted for context in batch]), len(batch)), len(batch))


def _by_message(rows: npt.NDArray[np.int64], ids: npt.NDArray[np.int64], count: int) -> Found:
    found: Found = [[] for _ in range(count)]
    for row, id in zip(rows.tolist(), ids.tolist(), strict=True):
        found[row].append(id)
    return found


def one_by_one(routing: RoutingTable, batch: Sequence[Context]) -> Found:
    """As the direct lane matches."""
    return [routing.match_one(context.promoted) for context in batch]


@contextmanager
def undone(connection: Connection) -> Iterator[None]:
    """What happens inside is rolled back."""
    with connection.transaction() as transaction:
        yield
        raise psycopg.Rollback(transaction)


def loaded(connection: Connection) -> RoutingTable:
    routing = RoutingTable()
    routing.catch_up(connection)
    return routing


def test_the_three_matchers_agree_on_the_catalogue_of_filters(box: Box) -> None:
    deploy(box, [comparison.prop for comparison in COMPARISONS])
    with undone(box.connection):
        ids = subscribe(box, [comparison.filter for comparison in COMPARISONS])
        cases = [(id, case) for id, comparison in zip(ids, COMPARISONS, strict=True) for case in comparison.cases]
        batch = [case.context for _, case in cases]
        wanted = [[id] if case.holds else [] for id, case in cases]
        routing = loaded(box.connection)
        assert by_function(box.connection, batch) == wanted
        assert by_index(routing, batch) == wanted
        assert one_by_one(routing, batch) == wanted


@settings(
    max_examples=40,
    # Shrinking against a database takes minutes; what is found is small as it is.
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
    deploy(box, PROPERTIES)
    batch = [
        Context(one, {key: value for key, value in other.items() if key not in one})
        for one, other in zip(promoted, written, strict=False)
    ]
    with undone(box.connection):
        ids = subscribe(box, subscribed)
        wanted = [
            [id for id, filter in zip(ids, subscribed, strict=True) if matches(filter, context.promoted)]
            for context in batch
        ]
        routing = loaded(box.connection)
        assert by_function(box.connection, batch) == wanted
        assert by_index(routing, batch) == wanted
        assert one_by_one(routing, batch) == wanted
