"""The keys of the subscription index: which predicates of a filter find its candidates."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest

from postroom.filters.columns import build_columns
from postroom.filters.expression import Filter, all_of
from postroom.filters.index import SubscriptionIndex
from postroom.filters.matching import two_passes
from postroom.filters.matching.ranked_batch import rank_batch
from postroom.filters.matching.two_passes import find_candidates
from postroom.properties import Property
from postroom.values import Value
from tests.support.subscription_index import (
    CHOICES,
    Port,
    Priority,
    Region,
    Weight,
    assert_equals_evaluator,
    build_index_with_ids,
    random_order,
)
from tests.support.subscription_index import way_of_matching as way_of_matching


@pytest.mark.parametrize("at_once", [two_passes.PAIRS_AT_ONCE, 100])
def test_two_equalities_are_one_key_if_many_groups_share_the_first(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(two_passes, "PAIRS_AT_ONCE", at_once)
    rng = random.Random(1)
    filters = {
        id: (Region == f"R{rng.randrange(4)}") & (Port == f"P{rng.randrange(30)}") & (Priority >= rng.randrange(90))
        for id in range(1_000)
    }
    filters |= {id: (Region == "R1") & (Priority < id % 100) for id in range(1_000, 1_200)}
    index = build_index_with_ids(filters)
    assert_equals_evaluator(filters, index, [random_order(rng) for _ in range(200)])
    (segment,) = index._segments
    assert max(len(path.features) for path in segment._paths) > 1


def test_an_equality_and_an_interval_are_one_key_if_many_groups_share_the_equality() -> None:
    rng = random.Random(3)
    filters: dict[int, Filter] = {}
    for id in range(2_000):
        low, width = rng.randrange(1_000), rng.choice((1, 3, 40, 900))
        narrowed = (Region == f"R{rng.randrange(4)}") & (Priority >= low) & (Priority < low + width)
        filters[id] = narrowed & (Port != f"P{rng.randrange(3)}") if id % 5 == 0 else narrowed
    filters |= {id: (Region == "R1") & (Priority > id % 100) for id in range(2_000, 2_200)}
    filters |= {id: Region == f"R{id % 4}" for id in range(2_200, 2_204)}
    index = build_index_with_ids(filters)
    batch = [random_order(rng) | {Priority.key: rng.randrange(-5, 1_100)} for _ in range(200)]
    assert_equals_evaluator(filters, index, [*batch, {Region.key: "R1"}, {Priority.key: 7}])
    (segment,) = index._segments
    assert any(len(path.features) > 1 and path.features[-1].shift is not None for path in segment._paths)


def random_choices(rng: random.Random, values: int = 4) -> dict[str, Value]:
    return {property.key: f"V{rng.randrange(values)}" for property in CHOICES}


def twelve_equalities(rng: random.Random, values: Mapping[str, Value]) -> Filter:
    return all_of(p == values[p.key] for p in rng.sample(CHOICES, 12))


def count_candidates(index: SubscriptionIndex, batch: Sequence[Mapping[str, Value]]) -> float:
    """Return how many groups, and how many look-ups, a message needs on average."""
    (segment,) = index._segments
    ranked = rank_batch(segment.slots, (), build_columns(batch), len(batch))
    found = sum(len(candidates.rows) for candidates in find_candidates(segment._paths, ranked))
    return found / len(batch) + len(segment._paths)


def test_a_key_has_as_many_equalities_as_are_needed_until_few_groups_share_it() -> None:
    rng = random.Random(5)
    batch = [random_choices(rng) for _ in range(20)]
    filters = {
        id: twelve_equalities(rng, rng.choice(batch) if id % 50 == 0 else random_choices(rng)) for id in range(8_000)
    }
    index = build_index_with_ids(filters)
    assert_equals_evaluator(filters, index, batch)
    (segment,) = index._segments
    assert max(len(path.features) for path in segment._paths) > 2
    # One equality would leave a quarter of the groups.
    assert count_candidates(index, batch) < 700


def test_properties_that_depend_on_each_other_do_not_end_a_key_too_early() -> None:
    rng = random.Random(6)
    numbers = [rng.randrange(40) for _ in range(4_000)]
    filters = {
        id: (Region == f"R{number}") & (Port == f"P{number}") & (Weight == float(rng.randrange(20)))
        for id, number in enumerate(numbers)
    }
    index = build_index_with_ids(filters)
    batch: list[dict[str, Value]] = [
        {Region.key: f"R{number}", Port.key: f"P{number}", Weight.key: float(rng.randrange(20))}
        for number in numbers[:50]
    ]
    assert_equals_evaluator(filters, index, batch)
    assert count_candidates(index, batch) < 10


def test_a_combination_of_properties_that_few_groups_have_gets_no_path() -> None:
    rng = random.Random(7)
    many = [Property(f"Many.P{number}", str) for number in range(200)]
    filters: dict[int, Filter] = {}
    for id in range(0, 3_000, 3):
        repeated = all_of(p == f"V{rng.randrange(4)}" for p in rng.sample(many, 6))
        filters |= dict.fromkeys(range(id, id + 3), repeated)
    index = build_index_with_ids(filters)
    batch: list[dict[str, Value]] = [{p.key: f"V{rng.randrange(4)}" for p in rng.sample(many, 150)} for _ in range(20)]
    batch += [{p.property.key: p.value for p in filters[id].groups[0] if p.value} for id in range(0, 90, 9)]
    assert_equals_evaluator(filters, index, batch)
    (segment,) = index._segments
    assert len(segment._paths) <= len(many)


def test_a_key_of_many_properties_with_many_values_does_not_overflow() -> None:
    wide = [Property(f"Wide.P{number}", int) for number in range(8)]
    filters = {id: all_of(p == id for p in wide) for id in range(3_000)}
    # The same values in all of them: only the last property distinguishes these.
    filters |= {id: all_of([*(p == 7 for p in wide[:-1]), wide[-1] == id]) for id in range(3_000, 6_000)}
    index = build_index_with_ids(filters)
    batch: list[dict[str, Value]] = [dict.fromkeys([p.key for p in wide[:-1]], 7) for _ in range(3)]
    for promoted, last in zip(batch, (7, 8, 4_000), strict=True):
        promoted[wide[-1].key] = last
    assert_equals_evaluator(filters, index, batch)


def test_an_equality_that_all_groups_share_is_not_used_as_key() -> None:
    filters = {id: (Region == "EU") & (Priority >= id) & (Priority < id + 2) for id in range(300)}
    filters |= {id: (Region == "EU") & (Port == f"P{id}") for id in range(300, 600)}
    index = build_index_with_ids(filters)
    assert_equals_evaluator(filters, index, [{Region.key: "EU", Priority.key: 7, Port.key: "P301"}, {Region.key: "EU"}])
    (segment,) = index._segments
    access_keys = {segment.slots[path.features[0].slot].key for path in segment._paths}
    assert access_keys == {Priority.key, Port.key}


def test_intervals_of_every_width_are_found() -> None:
    rng = random.Random(2)
    filters = {}
    for id in range(400):
        low = rng.randrange(-1_000, 1_000)
        filters[id] = (Priority >= low) & (Priority < low + 2 ** rng.randrange(11))
    filters |= {400: Priority < -990, 401: Priority > 990, 402: Priority != 5, 403: (Priority >= 7) & (Priority <= 7)}
    batch: list[dict[str, Value]] = [{Priority.key: value} for value in range(-1_010, 2_050, 7)]
    assert_equals_evaluator(filters, build_index_with_ids(filters), batch)
