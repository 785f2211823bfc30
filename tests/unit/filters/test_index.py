"""The subscription index: results for every form of a batch, and changes of subscriptions."""

from __future__ import annotations

import random
import threading
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from postroom.errors import NotFound
from postroom.filters import index as index_module
from postroom.filters.columns import build_columns
from postroom.filters.expression import Filter, Operator, Predicate
from postroom.filters.index import SubscriptionIndex
from postroom.properties import Property
from postroom.values import Value
from tests.support.subscription_index import (
    Due,
    Paid,
    Priority,
    Region,
    Total,
    Weight,
    assert_equals_evaluator,
    build_index,
    build_index_with_ids,
    match_pairs,
    random_order,
)
from tests.support.subscription_index import way_of_matching as way_of_matching


def test_messages_find_their_subscriptions() -> None:
    index = build_index(Region == "EU", (Total >= 10_000) & (Region != "TEST") | (Priority == 1))
    columns = {
        Region.key: pa.array(["EU", "US", "TEST", None]),
        Total.key: pa.array([20_000, 20_000, 20_000, 20_000], pa.decimal256(76, 38)),
        Priority.key: pa.array([1, None, None, None], pa.int64()),
    }
    assert match_pairs(index, columns, 4) == [(0, 1), (0, 2), (1, 2)]
    assert index.match_one({Region.key: "EU", Priority.key: 1}) == [1, 2]


def test_a_subscription_that_matches_by_two_groups_is_found_once() -> None:
    a, b, c = Property("T.A", int), Property("T.B", int), Property("T.C", str)
    filters = {5: (a == 1) & (b == 2) | c.exists()}
    index = SubscriptionIndex()
    index.add(5, filters[5])
    batch: list[dict[str, Value]] = [
        {a.key: 1, b.key: 2},
        {a.key: 1},
        {c.key: ""},
        {a.key: 1, b.key: 2, c.key: "9"},
        {},
    ]
    assert_equals_evaluator(filters, index, batch)
    assert index.match_one(batch[3]) == [5]


LADDERS: dict[Property, list[Value]] = {
    Region: ["", "ABC", "abc", "abd", "\uffff", "\U00010000"],
    Total: [
        Decimal("-9" + "9" * 37),
        Decimal("-1E-38"),
        Decimal(0),
        Decimal("1E-38"),
        Decimal("1.10"),
        Decimal("9" * 38),
    ],
    Priority: [-(2**63), -1, 0, 6, 2**53 + 1, 2**63 - 1],
    Weight: [-1.7e308, -5e-324, 0.0, 5e-324, 0.1, 1.7e308],
    Paid: [False, True],
    Due: [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(2026, 1, 31, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ],
}


@pytest.mark.parametrize("property", LADDERS, ids=lambda p: p.value_type.name)
def test_every_operator_agrees_with_the_evaluator_for_every_type(property: Property) -> None:
    operators = {Operator.EQ, Operator.NE} if property is Paid else set(Operator) - {Operator.EXISTS, Operator.BITAND}
    if property is Priority:
        operators.add(Operator.BITAND)
    predicates = [Predicate(property, op, value) for op in operators for value in LADDERS[property] if value != ""]
    predicates.append(Predicate(property, Operator.EXISTS))
    filters = {id: Filter(((predicate,),)) for id, predicate in enumerate(predicates)}
    batch: list[dict[str, Value]] = [{property.key: value} for value in LADDERS[property]]
    assert_equals_evaluator(filters, build_index_with_ids(filters), [*batch, {}])


def test_a_single_value_applies_to_every_message() -> None:
    index = build_index((Region == "EU") & (Priority >= 5) & Priority.bitand(4), Paid == True)  # noqa: E712
    columns = {Region.key: "EU", Priority.key: pa.array([4, 5, 9]), Paid.key: True}
    assert match_pairs(index, columns, 3) == [(0, 2), (1, 1), (1, 2), (2, 2)]
    assert match_pairs(index, {Region.key: "EU", Priority.key: 5}, 2) == [(0, 1), (1, 1)]
    assert match_pairs(index, {Region.key: None, Priority.key: 5}, 2) == []


@pytest.mark.parametrize(
    ("filter", "column", "found"),
    [
        (Region == "EU", pa.array(["EU", None, "US"], pa.large_string()), [0]),
        (Region == "EU", pa.array(["EU", None, "US", "EU"]).dictionary_encode(), [0, 3]),
        (Region == "EU", pa.array(["EU", "US"]).dictionary_encode().cast(pa.dictionary(pa.uint8(), pa.string())), [0]),
        (Region > "EU", pa.chunked_array([["EU"], ["US", "AT"]]), [1]),
        (Priority > 5, pa.array([5, 6, None], pa.int16()), [1]),
        (Priority.bitand(4), pa.array([3, None, 4, 6], pa.int8()), [2, 3]),
        (Total > 1, pa.array([Decimal("1.00"), Decimal("1.01")], pa.decimal128(10, 2)), [1]),
        (Total > 1, pa.array([2, 1, None, 3], pa.decimal256(76, 38)).slice(1), [2]),
        (Weight == 0.5, pa.array([0.5, 0.25], pa.float32()), [0]),
        (Weight == 0.0, pa.array([-0.0, 1.0]), [0]),
        (Due < datetime(2026, 1, 1, tzinfo=UTC), pa.array([0, 2**61], pa.timestamp("ns", "UTC")), [0]),
        (Paid == False, pa.array([None, False, True]), [1]),  # noqa: E712
        (Region.exists(), pa.array(["", None]), [0]),
    ],
)
def test_a_column_may_have_any_width_and_encoding_of_its_type(
    filter: Filter, column: pa.Array, found: list[int]
) -> None:
    property = filter.groups[0][0].property
    assert [row for row, _ in match_pairs(build_index(filter), {property.key: column}, len(column))] == found


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["1", "2"]),
        pa.array([1.0, 2.0]),
        pa.array([True, False]),
        pa.array([1, 2], pa.uint64()),
        pa.nulls(2, pa.int64()),
        pa.nulls(2),
        "1",
        1.0,
        True,
    ],
)
def test_a_column_of_another_type_matches_nothing(column: object) -> None:
    index = build_index(Priority == 1, Priority != 1, Priority < 5, Priority.exists(), Priority.bitand(1))
    assert match_pairs(index, {Priority.key: column}, 2) == []


def test_one_name_with_two_types_is_two_properties() -> None:
    text = Property("Orders.Priority", str)
    index = build_index(Priority.exists(), text.exists())
    assert index.match_one({Priority.key: 1}) == [1]
    assert index.match_one({Priority.key: "1"}) == [2]
    assert match_pairs(index, {Priority.key: "1"}, 1) == [(0, 2)]


def test_a_column_of_another_length_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"Orders#Region has 2 values for 3 messages"):
        build_index(Region == "EU").match({Region.key: pa.array(["EU", "US"])}, 3)


def test_an_empty_batch_and_an_empty_index_match_nothing() -> None:
    assert match_pairs(build_index(Region == "EU"), {}, 0) == []
    assert match_pairs(build_index(Region == "EU"), {}, 3) == []
    assert match_pairs(SubscriptionIndex(), {Region.key: "EU"}, 3) == []
    assert SubscriptionIndex().match_one({Region.key: "EU"}) == []


def test_a_contradiction_never_matches() -> None:
    index = build_index((Priority < 1) & (Priority > 2), (Region == "EU") & (Region == "US"), Priority.bitand(0))
    assert len(index) == 3
    assert index.match_one({Priority.key: 1, Region.key: "EU"}) == []
    index.remove(1)
    assert 1 not in index


def test_subscriptions_can_be_replaced_and_removed() -> None:
    index = build_index(Region == "EU", Region == "EU")
    assert index.match_one({Region.key: "EU"}) == [1, 2]
    index.add(1, Region == "US")
    assert index.match_one({Region.key: "EU"}) == [2]
    assert index.match_one({Region.key: "US"}) == [1]
    index.remove(2)
    assert (2 in index, 1 in index, len(index)) == (False, True, 1)
    assert match_pairs(index, {Region.key: "EU"}, 1) == []
    with pytest.raises(NotFound, match="no subscription 2"):
        index.remove(2)
    index.add(3, Region == "EU")
    index.remove(3)
    assert 3 not in index


def test_an_id_can_be_any_bigint() -> None:
    index = SubscriptionIndex()
    for id in (-(2**63), 2**63 - 1, 0):
        index.add(id, Region.exists())
    assert index.match_one({Region.key: "x"}) == [-(2**63), 0, 2**63 - 1]


def test_adding_a_subscription_does_not_recompile_the_others() -> None:
    index = build_index_with_ids({id: Region == f"R{id}" for id in range(200)}, small=16)
    index.match_one({})
    (large,) = index._segments
    index.add(1000, Region == "R7")
    assert index.match_one({Region.key: "R7"}) == [7, 1000]
    assert index._segments[0] is large


def test_segments_are_merged_and_shrink_with_their_subscriptions() -> None:
    index = SubscriptionIndex(small=16)
    for id in range(500):
        index.add(id, Region == f"R{id % 50}")
        index.match_one({})
    assert len(index._segments) <= 4
    for id in range(490):
        index.remove(id)
    assert sum(len(segment.ids) for segment in index._segments) <= 20
    assert index.match_one({Region.key: "R49"}) == [499]
    for id in range(490, 500):
        index.remove(id)
    assert index._segments == ()


def test_pending_additions_are_compiled_once() -> None:
    index = build_index_with_ids({id: Priority == id for id in range(100)}, max_pending=30)
    assert len(index._pending) < 30
    assert index._segments == ()
    assert (len(index), index.match_one({Priority.key: 99})) == (100, [99])
    assert len(index._segments) == 1


def test_pending_subscriptions_can_be_replaced_and_removed() -> None:
    index = build_index_with_ids({id: Priority == id for id in range(100)}, max_pending=30)
    index.add(5, Priority == 1_005)
    index.remove(6)
    assert (5 in index, 6 in index, 7 in index, len(index)) == (True, False, True, 99)
    assert [index.match_one({Priority.key: value}) for value in (5, 1_005, 6, 7)] == [[], [5], [], [7]]


def test_an_index_is_merged_after_enough_matches() -> None:
    filters = {id: Region == f"R{id % 50}" for id in range(2_000)}
    index = build_index_with_ids(filters, small=16)
    index.match_one({})
    for id in range(300):
        index.remove(id)
        del filters[id]
    for id in range(2_000, 2_100):
        filters[id] = Region == f"R{id % 50}"
        index.add(id, filters[id])
        index.match_one({})
    assert len(index._segments) > 1
    batch: list[dict[str, Value]] = [{Region.key: f"R{number}"} for number in range(50)]
    for _ in range(200):
        index.match(build_columns(batch), len(batch))
    (segment,) = index._segments
    assert len(segment.ids) == segment.live == len(filters), "removed subscriptions are dropped"
    assert_equals_evaluator(filters, index, batch)
    for _ in range(200):
        index.match_one(batch[0])
    assert index._segments == (segment,), "a merged index is not merged again"


def test_several_segments_have_the_same_result_and_order_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "_COST_OF_MERGE", 1_000)
    rng = random.Random(4)
    filters = {id: Region == f"R{rng.randrange(4)}" for id in range(300)}
    filters[2**63 - 1] = filters[-5] = Region == "R1"
    index = SubscriptionIndex(small=2)
    for id, filter in filters.items():
        index.add(id, filter)
        if id % 37 == 0:
            index.match_one({})
    batch = [random_order(rng) for _ in range(50)]
    assert_equals_evaluator(filters, index, batch)
    assert len(index._segments) > 1
    for id in (-5, 2**63 - 1):
        index.remove(id)
        del filters[id]
    assert_equals_evaluator(filters, index, batch)
    columns: dict[str, object] = {Region.key: pa.chunked_array([["R1", "R2"], [None, "R1"]])}
    expected = [
        (row, id)
        for row in (0, 1, 3)
        for id, filter in filters.items()
        if filter == (Region == f"R{2 if row == 1 else 1}")
    ]
    assert match_pairs(index, columns, 4) == sorted(expected)


def test_equal_messages_get_the_same_result() -> None:
    index = build_index((Region == "EU") & (Priority > 5), Region == "EU", Priority.bitand(1))
    columns = {Region.key: pa.array(["EU", "US"] * 50), Priority.key: pa.array([7, 7, 4, 4] * 25)}
    expected = [(row, id) for row in range(100) for id in ([1, 2, 3], [3], [2], [])[row % 4]]
    assert match_pairs(index, columns, 100) == expected


def test_a_copy_of_an_index_changes_on_its_own() -> None:
    index = build_index(Region == "EU", (Total > 5) | (Due > datetime(2026, 1, 1, tzinfo=UTC)))
    index.match_one({})
    index.add(3, Region != "US")
    copy = index.copy()
    copy.remove(1)
    assert copy.match_one({Region.key: "EU", Total.key: Decimal(6)}) == [2, 3]
    assert index.match_one({Region.key: "EU", Total.key: Decimal(6)}) == [1, 2, 3]


@pytest.mark.parametrize("cost_of_merge", [index_module._COST_OF_MERGE, 0], ids=["merged rarely", "merged always"])
def test_matching_is_correct_while_subscriptions_are_added_and_removed(
    monkeypatch: pytest.MonkeyPatch, cost_of_merge: int
) -> None:
    monkeypatch.setattr(index_module, "_COST_OF_MERGE", cost_of_merge)
    index = SubscriptionIndex(small=8)
    for id in range(50):
        index.add(id, Region == "EU")
    changed = threading.Event()
    wrong: list[list[int]] = []

    def match() -> None:
        while not changed.is_set():
            found = index.match_one({Region.key: "EU"})
            # 0 to 49 are replaced, but never absent.
            if found[:50] != list(range(50)):
                wrong.append(found)

    threads = [threading.Thread(target=match) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for turn in range(150):
            index.add(100 + turn, Region == "EU")
            index.add(turn % 50, (Region == "EU") | (Priority == turn))
            if turn % 3 == 0:
                index.remove(100 + turn)
    finally:
        changed.set()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert len(index.match_one({Region.key: "EU"})) == 150
