"""Which persistence points are delayed while the publishing of their host is throttled."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from postroom.hosts.orchestrations.publish_throttle import count_publishes, is_delayed
from postroom.message import Message
from postroom.orchestrations.correlation import CALLER
from postroom.orchestrations.driver import PersistencePoint
from postroom.orchestrations.journal import Command, Send, TimerFired
from postroom.throttling.states import Throttle, ThrottleState


def make_send(number: int, *, port: str | None = None, direct_port: str | None = None) -> Send:
    return Send(number=number, place="", message=Message.of(b""), port=port, direct_port=direct_port)


def make_point(*, sends: int = 0, answers: int = 0, consumed: int = 0) -> PersistencePoint:
    commands: list[Command] = [make_send(number, port="Out") for number in range(sends)]
    commands += [make_send(sends + number, direct_port=CALLER) for number in range(answers)]
    return PersistencePoint(
        handled=((TimerFired(time=datetime.now(UTC), number=1), tuple(commands)),),
        consumed=tuple(range(consumed)),
        has_ended=False,
        is_waiting=True,
        wake_at=None,
    )


def make_throttle(state: ThrottleState) -> Throttle:
    return Throttle(state=state, severity=0.5, delay=60, reason="too much")


@pytest.mark.parametrize("state", [ThrottleState.DATABASE_SIZE, ThrottleState.PUBLISHING_RATE])
def test_a_large_messagebox_delays_what_makes_it_larger(state: ThrottleState) -> None:
    """THR-09."""
    throttle = make_throttle(state)
    assert is_delayed(make_point(sends=2, consumed=1), throttle)
    assert is_delayed(make_point(sends=1), throttle)
    assert not is_delayed(make_point(sends=2, consumed=2), throttle)


@pytest.mark.parametrize("state", [ThrottleState.PUBLISHING_OVERRIDE, ThrottleState.PROCESS_MEMORY])
def test_other_states_delay_every_publish(state: ThrottleState) -> None:
    assert is_delayed(make_point(sends=1, consumed=5), make_throttle(state))


def test_answers_to_callers_are_no_publishes() -> None:
    assert count_publishes(make_point(answers=2)) == 0
    assert count_publishes(make_point(sends=1, answers=2)) == 1
