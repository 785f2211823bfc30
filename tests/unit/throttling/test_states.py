"""Which state a host is in, how severe it is, and how long it waits (THR-01, THR-02, THR-05, THR-06, THR-08)."""

from __future__ import annotations

import pytest

from postroom import Throttling
from postroom.messagebox.throttling.load import Load
from postroom.throttling import Override, OverrideMode, process_load
from postroom.throttling.process_load import find_process_limits
from postroom.throttling.rates import RATE_WINDOW, RateWindow
from postroom.throttling.states import LastingState, Limit, Throttle, ThrottleState, find_throttle

State = ThrottleState


def exceed(*states: ThrottleState, by: float = 0.5) -> list[Limit]:
    return [Limit(state=state, value=100 * (1 + by), threshold=100, what=state.name.lower()) for state in states]


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([State.DATABASE_SIZE, State.PROCESS_MEMORY, State.THREADS, State.IN_PROCESS], State.PROCESS_MEMORY),
        ([State.DATABASE_SIZE, State.THREADS, State.IN_PROCESS], State.IN_PROCESS),
        ([State.DATABASE_SIZE, State.THREADS], State.THREADS),
        (
            [State.PUBLISHING_RATE, State.DATABASE_SESSIONS, State.SYSTEM_MEMORY, State.DATABASE_SIZE],
            State.DATABASE_SIZE,
        ),
        ([State.DELIVERY_RATE, State.SYSTEM_MEMORY], State.SYSTEM_MEMORY),
    ],
)
def test_the_most_severe_of_the_exceeded_limits_is_the_state(
    states: list[ThrottleState], expected: ThrottleState
) -> None:
    throttle = find_throttle(exceed(*states), longest_delay=300)
    assert throttle is not None
    assert throttle.state is expected
    assert throttle.reason.count(" and ") == len(states) - 1


def test_the_highest_severity_decides_the_delay() -> None:
    limits = [*exceed(State.PROCESS_MEMORY, by=0.01), *exceed(State.DATABASE_SIZE, by=0.5)]
    throttle = find_throttle(limits, longest_delay=300)
    assert throttle is not None
    assert (throttle.severity, throttle.delay) == pytest.approx((0.5, 150))


def test_rate_throttling_delays_for_at_most_a_second_and_does_not_shrink_batches() -> None:
    throttle = find_throttle(exceed(State.DELIVERY_RATE, by=5), longest_delay=300)
    assert throttle is not None
    assert (throttle.severity, throttle.delay, throttle.rows(1_000)) == (1, 1, 1_000)


@pytest.mark.parametrize(
    ("incoming", "outgoing", "queued", "is_throttled"),
    [
        (126, 100, 600, True),
        (125, 100, 600, False),
        (99, 0, 600, False),  # too few samples
        (100, 0, 600, True),
        (10_000, 0, 500, False),  # the MessageBox absorbs a burst
    ],
)
def test_publishing_is_delayed_if_more_than_125_percent_of_what_leaves_the_queues_comes_in(
    incoming: int, outgoing: int, queued: int, is_throttled: bool
) -> None:
    """THR-03."""
    thresholds = Throttling(messages=1_000)
    load = Load(queued=queued, spooled=0, incoming=incoming, outgoing=outgoing, throttling=thresholds)
    throttle = load.get_throttle(None)
    assert (throttle is not None and throttle.state is State.PUBLISHING_RATE) is is_throttled
    unlimited = thresholds.model_copy(update={"overdrive": 0})
    assert Load(queued=queued, spooled=0, incoming=incoming, throttling=unlimited).get_throttle(None) is None


def test_a_rate_is_the_count_of_a_complete_window() -> None:
    now = [0.0]
    window = RateWindow(clock=lambda: now[0])
    window.update(200, 0)
    assert window.counts == (0, 0)
    now[0] = RATE_WINDOW
    window.update(300, 150)
    assert window.counts == (300, 150)
    now[0] += RATE_WINDOW
    window.update(310, 310)
    assert window.counts == (10, 160)


def test_too_many_sessions_of_the_database_throttle_publishing() -> None:
    throttle = Load(queued=0, spooled=0, sessions=150, throttling=Throttling(sessions=100)).get_throttle(None)
    assert throttle is not None
    assert (throttle.state, throttle.severity) == (State.DATABASE_SESSIONS, 0.5)
    assert throttle.reason == "150 sessions use the database; the threshold is 100"


def test_an_override_always_throttles_or_never() -> None:
    """THR-08: severity 1 to 1,000, by default 100."""

    def throttle(mode: OverrideMode, severity: int = 100) -> Throttle | None:
        override = Override(mode=mode, severity=severity)
        return Load(queued=75, spooled=0, throttling=Throttling(messages=50), override=override).get_throttle(None)

    automatic = throttle(OverrideMode.AUTO)
    assert automatic is not None
    assert (automatic.state, automatic.delay) == (State.DATABASE_SIZE, 150)
    always = throttle(OverrideMode.ALWAYS)
    assert always is not None
    assert (always.state, always.delay) == (State.PUBLISHING_OVERRIDE, 30)
    most = throttle(OverrideMode.ALWAYS, 1_000)
    assert most is not None
    assert (most.delay, most.rows(1_000)) == (300, 1)
    assert throttle(OverrideMode.NEVER) is None


def test_the_process_is_measured_for_each_threshold_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_load, "_total_memory", lambda: 1 << 20)  # a megabyte
    limits = find_process_limits(Throttling(process_memory=50, system_memory=0.001, threads=1))
    assert [limit.state for limit in limits] == [State.PROCESS_MEMORY, State.SYSTEM_MEMORY, State.THREADS]
    memory, system, threads = limits
    assert (memory.threshold, system.threshold) == (0.5, 0.001)
    assert min(memory.excess, system.excess, threads.value) > 0
    assert find_process_limits(Throttling(process_memory=0)) == []


def test_a_state_lasts_until_another_one() -> None:
    lasting = LastingState()
    throttle = find_throttle(exceed(State.DATABASE_SIZE), longest_delay=1)
    assert [lasting.update(one) for one in (None, throttle, throttle, None)] == [False, True, False, True]
    assert lasting.state is State.NONE
