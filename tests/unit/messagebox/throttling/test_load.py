"""The throttle of a host as a function of the load of the MessageBox (THR-04, THR-05)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom import Application, Throttling
from postroom.errors import DefinitionError, DefinitionRefused
from postroom.messagebox.throttling.load import Load
from postroom.throttling.states import Throttle

COUNTS = st.integers(0, 10**9)


def calculate(thresholds: Throttling, queued: int, spooled: int = 0) -> Throttle | None:
    return Load(queued=queued, spooled=spooled, throttling=thresholds).get_throttle(None)


@pytest.mark.parametrize(
    ("thresholds", "queued", "spooled"),
    [
        (Throttling(), 50_000, 500_000),
        (Throttling(messages=0), 10**9, 10**9),
        (Throttling(messages=10, spool_multiplier=0), 10, 10**9),
    ],
)
def test_a_load_up_to_the_thresholds_or_without_thresholds_is_not_throttled(
    thresholds: Throttling, queued: int, spooled: int
) -> None:
    assert calculate(thresholds, queued, spooled) is None


def test_the_delay_grows_with_the_excess_up_to_the_longest() -> None:
    delays = [calculate(Throttling(), queued) for queued in (50_001, 55_000, 75_000, 100_000, 10**7)]
    assert [one and one.delay for one in delays] == pytest.approx([0.5, 30, 150, 300, 300])
    assert [one and one.rows(1_000) for one in delays] == [100, 90, 50, 1, 1]


def test_the_higher_severity_and_its_reason_apply() -> None:
    slow = calculate(Throttling(), 60_000, 1_000_000)
    assert slow is not None
    assert slow.reason == "1,000,000 messages are in the spool; the threshold is 500,000"
    slow = calculate(Throttling(), 90_000, 510_000)
    assert slow is not None
    assert slow.reason == "90,000 messages are in the queues; the threshold is 50,000"


@given(COUNTS, COUNTS, COUNTS, st.integers(0, 10**6), st.floats(0, 100), st.floats(0, 3600))
def test_more_load_never_means_larger_batches_and_no_batch_is_empty(
    queued: int, spooled: int, more: int, messages: int, multiplier: float, longest: float
) -> None:
    thresholds = Throttling(messages=messages, spool_multiplier=multiplier, longest_delay=longest)
    before, after = (calculate(thresholds, queued + extra, spooled) for extra in (0, more))
    assert before is None or after is not None
    if before is not None and after is not None:
        assert before.delay <= after.delay <= longest
        assert 1 <= after.rows(1_000) <= before.rows(1_000) <= 100


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"messages": -1}, "messages"),
        ({"spool_multiplier": -0.5}, "spool_multiplier"),
        ({"longest_delay": 1e6}, "delay"),
    ],
)
def test_invalid_thresholds_are_rejected_with_the_application(settings: dict[str, Any], error: str) -> None:
    app = Application("a")
    app.host("Main", throttling=Throttling(**settings))
    with pytest.raises(DefinitionRefused, match=error):
        app.definition()
    with pytest.raises(DefinitionError, match="messages"):
        Throttling(messages="many")  # type: ignore[arg-type]
