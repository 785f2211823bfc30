"""The poller claims less often while its claims have to read the backlog of slow services."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from postroom.hosts.dequeue.poller import Poller, QueueClaimer
from postroom.messagebox.configuration.hosts import Dequeuing, ServiceClass
from tests.support.waiting import wait_until
from tests.unit.hosts.dequeue.test_slow_services import SLOW, occupied_buffer, of
from tests.unit.hosts.dequeue.test_work_buffer import take_seqs


def test_the_poller_rests_after_a_slow_claim_until_the_slow_service_may_be_claimed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    buffer, _ = occupied_buffer(10, SLOW)
    buffer.put(of(SLOW, *range(10)), 0)
    now, claims = [1000.0], list[list[bytes]]()

    def advance_until_claimed(count: int) -> bool:
        """Advance the clock in steps that are shorter than a rest."""
        if len(claims) == count:
            return True
        now[0] += 15
        return False

    class SlowClaimer:
        """Finds no messages, and needs ten seconds for that."""

        def claim(self, capacity: int, generation: int, *, limit: int) -> int:
            now[0] += 10
            buffer.release_capacity(capacity)
            claims.append(buffer.excluded_services)
            return 0

        def release_unconfirmed(self) -> None: ...

        def close(self) -> None: ...

    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr("postroom.hosts.dequeue.poller.time", clock)
    dequeuing = Dequeuing(
        service_class=ServiceClass.MESSAGING_IN_PROCESS, polling_interval=timedelta(hours=1), dequeue_threads=1
    )
    poller = Poller(dequeuing, buffer, lambda: cast(QueueClaimer, SlowClaimer()), lambda: None)
    poller.start()
    try:
        wait_until(lambda: claims == [[SLOW]])
        for _ in range(5):
            poller.wake()
        assert claims == [[SLOW]]
        wait_until(lambda: advance_until_claimed(2))
        assert claims == [[SLOW], [SLOW]]
        # The clock stands still, but the slow service may be claimed again.
        take_seqs(buffer, 6)
        wait_until(lambda: claims == [[SLOW], [SLOW], []])
    finally:
        poller.stop()
        buffer.close()
        poller.join(now[0])
