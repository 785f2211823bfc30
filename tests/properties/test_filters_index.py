"""The index finds the same subscriptions as the evaluator, for all filters and contexts."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postroom.filters import index as index_module
from postroom.filters.columns import build_columns, to_arrow_type
from postroom.filters.evaluate import matches
from postroom.filters.expression import Filter, Operator, Predicate, all_of
from postroom.filters.index import SubscriptionIndex
from postroom.filters.matching import two_passes
from postroom.properties import Property
from postroom.values import Value, ValueType
from tests.support.filter_strategies import POOLS, PROPERTIES, contexts, filters, misfits, operators_of

Ids = st.integers(0, 12) | st.sampled_from([-(2**63), -1, 2**63 - 1])


def match_by_evaluator(filters: Mapping[int, Filter], batch: Sequence[Mapping[str, Value]]) -> list[list[int]]:
    return [sorted(id for id, filter in filters.items() if matches(filter, promoted)) for promoted in batch]


def match_by_index(index: SubscriptionIndex, batch: Sequence[Mapping[str, Value]]) -> list[list[int]]:
    """Match the batch as a whole, without and with signatures, and message by message. The results are the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_module, "MIN_VALUES_OF_COLUMN", 0)
        rows, ids = index.match(build_columns(batch), len(batch))
        patch.setattr(two_passes, "COST_OF_PREDICATE", -1_000_000)
        by_signatures = index.match(build_columns(batch), len(batch))
        patch.setattr(index_module, "MIN_VALUES_OF_COLUMN", 1_000_000)
        one_by_one = index.match(build_columns(batch), len(batch))
    for other in (by_signatures, one_by_one):
        assert [each.tolist() for each in other] == [rows.tolist(), ids.tolist()]
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
def test_index_equals_evaluator_while_subscriptions_are_added_and_removed(
    steps: list[tuple[int, Filter | None] | list[dict[str, Value]]],
) -> None:
    index = SubscriptionIndex(small=3, max_pending=7)
    subscribed: dict[int, Filter] = {}
    for step in steps:
        if isinstance(step, list):
            assert [index.match_one(promoted) for promoted in step] == match_by_evaluator(subscribed, step)
            assert match_by_index(index, step) == match_by_evaluator(subscribed, step)
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
def test_index_equals_evaluator_for_values_of_other_types(subscribed: list[Filter], promoted: dict[str, Value]) -> None:
    index = SubscriptionIndex()
    for id, filter in enumerate(subscribed):
        index.add(id, filter)
    expected = match_by_evaluator(dict(enumerate(subscribed)), [promoted])
    assert [index.match_one(promoted)] == expected
    assert match_by_index(index, [promoted]) == expected
    # The last batch is large enough to be matched as a whole.
    for size in (3, 20):
        rows, ids = index.match(promoted, size)
        pairs = list(zip(rows.tolist(), ids.tolist(), strict=True))
        assert pairs == [(row, id) for row in range(size) for id in expected[0]]


@settings(max_examples=8)
@given(st.integers(0, 2**32), st.integers(1, len(PROPERTIES)), st.sampled_from([0.2, 0.6, 0.95]))
def test_index_equals_evaluator_for_thousands_of_subscriptions(seed: int, properties: int, equalities: float) -> None:
    rng = random.Random(seed)
    chosen = rng.sample(PROPERTIES, properties)

    def predicate() -> Predicate:
        property = rng.choice(chosen)
        operator = Operator.EQ if rng.random() < equalities else rng.choice(operators_of(property.value_type))
        return Predicate(
            property, operator, None if operator is Operator.EXISTS else rng.choice(POOLS[property.value_type])
        )

    subscribed = {
        id: Filter(tuple(tuple(predicate() for _ in range(rng.randint(1, 4))) for _ in range(rng.choice((1, 1, 1, 2)))))
        for id in range(1_500)
    }
    batch = [{p.key: rng.choice(POOLS[p.value_type]) for p in chosen if rng.random() < 0.8} for _ in range(30)]
    index = SubscriptionIndex(max_pending=rng.choice((100, 10_000)))
    for id, filter in subscribed.items():
        index.add(id, filter)
    for id in rng.sample(sorted(subscribed), 300):
        index.remove(id)
        del subscribed[id]
    expected = match_by_evaluator(subscribed, batch)
    assert [index.match_one(promoted) for promoted in batch] == expected
    # The batch is repeated, so that equal messages are matched once.
    assert match_by_index(index, batch * 5) == expected * 5


@settings(max_examples=8)
@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(2, 5), st.booleans())
def test_index_equals_evaluator_for_many_equalities_over_few_values(
    seed: int, equalities: int, values: int, has_ranges: bool
) -> None:
    rng = random.Random(seed)
    properties = [Property(f"Orders.Choice{number}", str) for number in range(40)]
    total = Property("Orders.Total", int)

    def message() -> dict[str, Value]:
        chosen: dict[str, Value] = {p.key: f"V{rng.randrange(values)}" for p in properties if rng.random() < 0.97}
        return chosen | {total.key: rng.randrange(1_000)}

    def filter(matched: Mapping[str, Value]) -> Filter:
        """Return a filter that matches this message, if it has the properties."""
        equal = [p == matched.get(p.key, "V0") for p in rng.sample(properties, equalities)]
        low = rng.randrange(1_000)
        return all_of([*equal, total >= low, total < low + rng.choice((3, 50))] if has_ranges else equal)

    batch = [message() for _ in range(40)]
    subscribed = {id: filter(rng.choice(batch) if id % 20 == 0 else message()) for id in range(3_000)}
    index = SubscriptionIndex()
    for id, each in subscribed.items():
        index.add(id, each)
    for id in rng.sample(sorted(subscribed), 500):
        index.remove(id)
        del subscribed[id]
    expected = match_by_evaluator(subscribed, batch)
    assert [index.match_one(promoted) for promoted in batch] == expected
    assert match_by_index(index, batch) == expected


@settings(max_examples=50)
@given(st.data())
def test_a_slice_of_a_column_is_matched_like_its_values(data: st.DataObject) -> None:
    property = data.draw(st.sampled_from(PROPERTIES))
    pool = st.sampled_from(POOLS[property.value_type]) | st.none()
    values = data.draw(st.lists(pool, min_size=1, max_size=12))
    start = data.draw(st.integers(0, len(values) - 1))
    column = pa.array(values, to_arrow_type(property.value_type)).slice(start)
    index = SubscriptionIndex()
    subscribed = {}
    for id, (operator, value) in enumerate(
        (operator, value) for operator in operators_of(property.value_type) for value in POOLS[property.value_type][:4]
    ):
        subscribed[id] = Filter(((Predicate(property, operator, None if operator is Operator.EXISTS else value),),))
        index.add(id, subscribed[id])
    batch: list[dict[str, Value]] = [{} if value is None else {property.key: value} for value in values[start:]]
    rows, ids = index.match({property.key: column}, len(column))
    expected = [(row, id) for row, ids in enumerate(match_by_evaluator(subscribed, batch)) for id in ids]
    assert list(zip(rows.tolist(), ids.tolist(), strict=True)) == expected
    if property.value_type is ValueType.STR:
        rows, ids = index.match({property.key: column.dictionary_encode()}, len(column))
        assert list(zip(rows.tolist(), ids.tolist(), strict=True)) == expected
