"""The watch knows which threads run the code of an orchestration for too long."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, cast

import pytest

from postroom.hosts.orchestrations.turn_watch import TurnWatch
from postroom.processes.time_limit import TimedOut
from tests.support.claimed_instances import claim


class InterruptingLock:
    """Stands for a lock that the thread waits for when it is interrupted."""

    def __enter__(self) -> None:
        raise TimedOut

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        raise AssertionError("it was never acquired")


def test_a_thread_that_was_interrupted_at_the_end_of_its_turn_is_not_stuck() -> None:
    watch = TurnWatch(30.0, lambda claimed, description: None, lambda: None)
    turn = cast(Any, watch.watch(claim()))
    turn.__enter__()
    turn.is_interrupted = True
    turn.lock = InterruptingLock()
    with pytest.raises(TimedOut):
        turn.__exit__(None, None, None)
    assert watch.stuck_threads == [threading.current_thread()]
    watch.end_turn()
    assert watch.stuck_threads == []


def test_the_next_turn_of_a_thread_replaces_the_last_one() -> None:
    watch = TurnWatch(30.0, lambda claimed, description: None, lambda: None)
    turn = cast(Any, watch.watch(claim()))
    turn.__enter__()
    turn.is_interrupted = True
    with watch.watch(claim()):
        assert watch.stuck_threads == []
    assert watch.stuck_threads == []
