"""A throttled poller claims fewer messages, less often. It holds nothing while it waits (THR-02, THR-05)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from postroom.hosts.dequeue.poller import Poller, QueueClaimer
from postroom.hosts.dequeue.work_buffer import WorkBuffer
from postroom.messagebox.configuration.hosts import Dequeuing, ServiceClass
from postroom.throttling.states import Throttle, ThrottleState
from tests.support.waiting import wait_until
from tests.unit.hosts.dequeue.test_work_buffer import unpaused_buffer


def throttle(state: ThrottleState, severity: float = 0.5) -> Throttle:
    return Throttle(state=state, severity=severity, delay=60, reason="too much")


class Claims:
    """A claimer that always finds as many messages as it may claim, on a clock that a test moves."""

    def __init__(self, buffer: WorkBuffer) -> None:
        self.now, self.limits = 1_000.0, list[int]()
        self.throttle: Throttle | None = None
        self.checks = self.releases = 0
        self._buffer = buffer

    def claim(self, capacity: int, generation: int, *, limit: int) -> int:
        self._buffer.release_capacity(capacity)
        self.limits.append(limit)
        return 0

    def release_unconfirmed(self) -> None:
        self.releases += 1

    def close(self) -> None: ...

    def get_throttle(self) -> Throttle | None:
        self.checks += 1
        return self.throttle


@contextmanager
def poll(monkeypatch: pytest.MonkeyPatch, first: Throttle | None) -> Iterator[tuple[Claims, Poller]]:
    buffer = unpaused_buffer(100)
    claims = Claims(buffer)
    claims.throttle = first
    clock = SimpleNamespace(monotonic=lambda: claims.now)
    monkeypatch.setattr("postroom.hosts.dequeue.poller.time", clock)
    dequeuing = Dequeuing(
        service_class=ServiceClass.MESSAGING_IN_PROCESS, polling_interval=timedelta(hours=1), dequeue_threads=1
    )
    poller = Poller(dequeuing, buffer, lambda: cast(QueueClaimer, claims), claims.get_throttle)
    poller.start()
    try:
        yield claims, poller
    finally:
        poller.stop()
        buffer.close()
        poller.join(claims.now)


def test_a_throttled_poller_claims_little_and_waits_for_the_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    with poll(monkeypatch, throttle(ThrottleState.PROCESS_MEMORY)) as (claims, poller):
        wait_until(lambda: claims.limits == [2])  # of 50
        checks = claims.checks
        poller.wake()
        wait_until(lambda: claims.checks > checks + 2)
        assert claims.limits == [2]
        claims.now += 60
        poller.wake()
        wait_until(lambda: claims.limits == [2, 2])
        claims.throttle = None
        poller.wake()
        wait_until(lambda: claims.limits == [2, 2, 50])


def test_nothing_is_claimed_while_too_many_messages_are_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with poll(monkeypatch, throttle(ThrottleState.IN_PROCESS, 0.01)) as (claims, poller):
        claims.now += 3_600
        poller.wake()
        wait_until(lambda: claims.checks > 3)
        assert claims.limits == []
        claims.throttle = None
        poller.wake()
        wait_until(lambda: claims.limits == [50])


@pytest.mark.parametrize("first", [None, throttle(ThrottleState.PROCESS_MEMORY, 1.0)])
def test_a_claim_that_no_thread_got_is_released_although_no_other_claim_follows(
    monkeypatch: pytest.MonkeyPatch, first: Throttle | None
) -> None:
    """Without a backlog the second claimer claims nothing, and neither claimer does while the poller is throttled."""
    with poll(monkeypatch, first) as (claims, _):
        wait_until(lambda: claims.releases > 0)
