"""The explanation of a filter: why it matches or not, and the distance of a miss."""

from __future__ import annotations

from decimal import Decimal

import pytest

from postroom.filters.explain import Reason, explain
from postroom.filters.expression import Filter
from postroom.properties import Property
from postroom.values import Value

Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)
Priority = Property("Orders.Priority", int)


@pytest.mark.parametrize(
    ("promoted", "written", "reason", "value", "description"),
    [
        ({Region.key: "EU"}, {}, Reason.HOLDS, "EU", "Orders.Region == 'EU' holds: the value is 'EU'"),
        ({Region.key: "US"}, {}, Reason.DIFFERS, "US", "Orders.Region == 'EU' fails: the value is 'US'"),
        ({}, {}, Reason.MISSING, None, "Orders.Region == 'EU' fails: the message has no such property"),
        (
            {},
            {Region.key: "EU"},
            Reason.NOT_PROMOTED,
            "EU",
            "Orders.Region == 'EU' fails: the property is written ('EU') but not promoted",
        ),
        (
            {Region.key: 5},
            {},
            Reason.TYPE_DIFFERS,
            5,
            "Orders.Region == 'EU' fails: the value is 5, of type int and not str",
        ),
    ],
)
def test_a_predicate_is_explained_with_its_reason_and_value(
    promoted: dict[str, Value], written: dict[str, Value], reason: Reason, value: Value | None, description: str
) -> None:
    explanation = explain(Region == "EU", promoted, written)
    ((predicate,),) = (group.predicates for group in explanation.groups)
    assert (predicate.reason, predicate.value, predicate.description) == (reason, value, description)
    assert predicate.holds is explanation.holds is (reason is Reason.HOLDS)


def test_every_group_and_predicate_is_explained() -> None:
    filter = (Total >= 10_000) & (Region != "TEST") | Priority.exists()
    explanation = explain(filter, {Total.key: Decimal(5), Region.key: "EU"}, {})
    assert [[p.holds for p in group.predicates] for group in explanation.groups] == [[False, True], [False]]
    assert [group.holds for group in explanation.groups] == [False, False]
    assert explanation.nearest is explanation.groups[0]


def test_a_matching_filter_has_distance_zero() -> None:
    filter = (Total >= 10_000) | Priority.exists()
    explanation = explain(filter, {Priority.key: 1}, {})
    assert explanation.holds
    assert explanation.distance == 0
    assert explanation.nearest.predicates[0].description == "exists(Orders.Priority) holds: the value is 1"


def test_misses_are_ordered_by_distance() -> None:
    promoted: dict[str, Value] = {Region.key: "EU", Priority.key: 2}
    written: dict[str, Value] = {Total.key: Decimal(20)}
    from_near_to_far: list[Filter] = [
        Region == "EU",
        (Region == "EU") & (Total >= 10),
        Total >= 10,
        (Region == "EU") & (Priority == 1),
        Priority == 1,
        Property("Orders.Customer", str) == "C1",
        (Region == "US") & (Priority == 1),
    ]
    distances = [explain(filter, promoted, written).distance for filter in from_near_to_far]
    assert distances == sorted(distances)
    assert len(set(distances)) == len(distances)
