"""Choose some of the long tests by a seed.

`@pytest.mark.sample("killed pipeline")` puts a test with all its cases into a group, of which one case runs. Without a
name the cases of the test are a group of their own. `@pytest.mark.sample(count=2)` runs two cases.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import pytest


@dataclass(frozen=True, kw_only=True)
class LongTest:
    """One case of a test function, its group, and the number of cases of the group that run."""

    name: str
    function: str
    group: str
    count: int = 1


def read_long_test(item: pytest.Item) -> LongTest | None:
    """Return None for a test that always runs."""
    marker = item.get_closest_marker("sample")
    if marker is None:
        return None
    function = item.nodeid.partition("[")[0]
    [group] = marker.args or [function]
    return LongTest(name=item.nodeid, function=function, group=group, **marker.kwargs)


def choose_sample(tests: Iterable[LongTest], seed: str) -> set[str]:
    """Return the names of the tests that run. The choice in one group does not depend on the other groups.

    The cases of one function are in turn with those of the other functions, so that a function with many cases is not
    chosen more often."""
    groups: dict[str, list[LongTest]] = defaultdict(list)
    for test in tests:
        groups[test.group].append(test)
    return {name for group, members in groups.items() for name in _choose(members, random.Random(f"{seed} {group}"))}


def _choose(members: list[LongTest], chance: random.Random) -> Iterable[str]:
    ranks: list[tuple[int, float, LongTest]] = []
    earlier: Counter[str] = Counter()
    for test in chance.sample(members, len(members)):
        ranks.append((earlier[test.function], chance.random(), test))
        earlier[test.function] += 1
    ranks.sort(key=lambda rank: rank[:2])
    return [test.name for number, (_, _, test) in enumerate(ranks) if number < test.count]
