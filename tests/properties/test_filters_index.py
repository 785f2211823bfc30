"""The index finds exactly what the evaluator says, whatever the filters and contexts, while both come and go."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postroom.filters.columns import arrow_type, columns_of
from postroom.filters.evaluate import matches
from postroom.filters.expression import Filter, Operator, Predicate
from postroom.filters.index import SubscriptionIndex
from postroom.values import Value, ValueType
from tests.support.filter_strategies import POOLS, PROPERTIES, contexts, filters, misfits, operators_of

Ids = st.integers(0, 12) | st.sampled_from([-(2**63), -1, 2**63 - 1])


def expected(filters: Mapping[int, Filter], batch: Sequence[Mapping[str, Value]]) -> list[list[int]]:
    return [sorted(id for id, filter in filters.items() if matches(filter, promoted)) for promoted in batch]


def found(index: SubscriptionIndex, batch: Sequence[Mapping[str, Value]]) -> list[list[int]]:
    rows, ids = index.match(columns_of(batch), len(batch))
    by_row: list[list[int]] = [[] for _ in batch]
    for row, id in zip(rows.tolist(), ids.tolist(), strict=True):
        by_row[row].append(id)
    assert sorted(rows.tolist()) == rows.tolist()
    return by_row


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    st.lists(
        st.tuples(Ids, filters() | st.none()) | st.lists(contexts(), min_size=1, max_size=6),
        min_size=1,
        max_size=25,
    )
)
def test_index_equals_evaluator_while_subscriptions_come_and_go(
    steps: list[tuple[int, Filter | None] | list[dict[str, Value]]],
) -> None:
    index = SubscriptionIndex(small=3, max_pending=7)
    subscribed: dict[int, Filter] = {}
    for step in steps:
        if isinstance(step, list):
            assert [index.match_one(promoted) for promoted in step] == expected(subscribed, step)
            assert found(index, step) == expected(subscribed, step)
            continue
        id, filter = step
        if filter is not None:
            index.add(id, filter)
            subscribed[id] = filter
        elif subscribed.pop(id, None) is not None:
            index.remove(id)
        assert len(index) == len(subscribed)
        assert (id in index) == (id in subscribed)


@settings(max_examples=40)
@given(st.lists(filters(), min_size=1, max_size=10), misfits())
def test_values_of_other_types_meet_nothing_in_the_index_either(
    subscribed: list[Filter], promoted: dict[str, Value]
) -> None:
    index = SubscriptionIndex()
    for id, filter in enumerate(subscribed):
        index.add(id, filter)
    wanted = expected(dict(enumerate(subscribed)), [promoted])
    assert [index.match_one(promoted)] == wanted
    assert found(index, [promoted]) == wanted
    rows, ids = index.match(promoted, 3)
    assert list(zip(rows.tolist(), ids.tolist(), strict=True)) == [(row, id) for row in range(3) for id in wanted[0]]


@settings(max_examples=8)
@given(st.integers(0, 2**32), st.integers(1, len(PROPERTIES)), st.sampled_from([0.2, 0.6, 0.95]))
def test_index_equals_evaluator_for_thousands(seed: int, properties: int, equalities: float) -> None:
    chance = random.Random(seed)
    chosen = chance.sample(PROPERTIES, properties)

    def predicate() -> Predicate:
        property = chance.choice(chosen)
        operator = Operator.EQ if chance.random() < equalities else chance.choice(operators_of(property.value_type))
        return Predicate(
            property, operator, None if operator is Operator.EXISTS else chance.choice(POOLS[property.value_type])
        )

    subscribed = {
        id: Filter(
            tuple(tuple(predicate() for _ in range(chance.randint(1, 4))) for _ in range(chance.choice((1, 1, 1, 2))))
        )
        for id in range(1_500)
    }
    batch = [{p.key: chance.choice(POOLS[p.value_type]) for p in chosen if chance.random() < 0.8} for _ in range(30)]
    index = SubscriptionIndex(max_pending=chance.choice((100, 10_000)))
    for id, filter in subscribed.items():
        index.add(id, filter)
    for id in chance.sample(sorted(subscribed), 300):
        index.remove(id)
        del subscribed[id]
    wanted = expected(subscribed, batch)
    assert [index.match_one(promoted) for promoted in batch] == wanted
    # Again and again, so that messages which look alike are matched as one.
    assert found(index, batch * 5) == wanted * 5


@settings(max_examples=50)
@given(st.data())
def test_a_column_is_matched_the_same_however_it_is_cut(data: st.DataObject) -> None:
    property = data.draw(st.sampled_from(PROPERTIES))
    pool = st.sampled_from(POOLS[property.value_type]) | st.none()
    values = data.draw(st.lists(pool, min_size=1, max_size=12))
    start = data.draw(st.integers(0, len(values) - 1))
    column = pa.array(values, arrow_type(property.value_type)).slice(start)
    index = SubscriptionIndex()
    subscribed = {}
    for id, (operator, value) in enumerate(
        (operator, value) for operator in operators_of(property.value_type) for value in POOLS[property.value_type][:4]
    ):
        subscribed[id] = Filter(((Predicate(property, operator, None if operator is Operator.EXISTS else value),),))
        index.add(id, subscribed[id])
    batch: list[dict[str, Value]] = [{} if value is None else {property.key: value} for value in values[start:]]
    rows, ids = index.match({property.key: column}, len(column))
    wanted = [(row, id) for row, ids in enumerate(expected(subscribed, batch)) for id in ids]
    assert list(zip(rows.tolist(), ids.tolist(), strict=True)) == wanted
    if property.value_type is ValueType.STR:
        rows, ids = index.match({property.key: column.dictionary_encode()}, len(column))
        assert list(zip(rows.tolist(), ids.tolist(), strict=True)) == wanted
