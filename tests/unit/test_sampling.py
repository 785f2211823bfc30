"""A seed chooses some of the long tests. Each group has the given number of tests in every run."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.sampling import LongTest, choose_sample, read_long_test

SEEDS = [str(number) for number in range(300)]
POINTS = [LongTest(name=f"frozen[{number}]", function="frozen", group="frozen", count=2) for number in range(20)]
KILLED = [
    LongTest(name="killed bulk", function="killed bulk", group="killed"),
    *(LongTest(name=f"killed sink[{number}]", function="killed sink", group="killed") for number in range(5)),
]


def test_each_group_has_its_number_of_tests() -> None:
    for seed in SEEDS:
        chosen = choose_sample([*POINTS, *KILLED], seed)
        assert Counter(name.partition(" ")[0].partition("[")[0] for name in chosen) == {"frozen": 2, "killed": 1}


def test_every_case_is_chosen_by_some_seed() -> None:
    chosen = {name for seed in SEEDS for name in choose_sample([*POINTS, *KILLED], seed)}
    assert chosen == {test.name for test in [*POINTS, *KILLED]}


def test_a_function_with_many_cases_is_chosen_as_often_as_another() -> None:
    bulk = sum("killed bulk" in choose_sample(KILLED, seed) for seed in SEEDS)
    assert 120 < bulk < 180


def test_a_seed_chooses_the_same_tests_of_a_group_when_other_groups_are_added() -> None:
    for seed in SEEDS:
        assert choose_sample(KILLED, seed) == choose_sample([*POINTS, *KILLED], seed) & {test.name for test in KILLED}


def test_a_group_with_fewer_tests_than_its_number_runs_all() -> None:
    assert choose_sample(POINTS[:1], "7") == {"frozen[0]"}


@pytest.mark.sample("a group of one")
def test_a_marked_test_has_the_group_of_its_marker(request: pytest.FixtureRequest) -> None:
    name = "tests/unit/test_sampling.py::test_a_marked_test_has_the_group_of_its_marker"
    test = read_long_test(request.node)
    assert test is not None
    assert (test.function, test.group, test.count) == (name, "a group of one", 1)


@pytest.mark.sample(count=2)
@pytest.mark.parametrize("case", [1, 2])
def test_the_cases_of_a_test_are_a_group(request: pytest.FixtureRequest, case: int) -> None:
    name = "tests/unit/test_sampling.py::test_the_cases_of_a_test_are_a_group"
    assert read_long_test(request.node) == LongTest(name=f"{name}[{case}]", function=name, group=name, count=2)


def test_an_unmarked_test_always_runs(request: pytest.FixtureRequest) -> None:
    assert read_long_test(request.node) is None
