"""The watcher diverts messages to spare threads while slow services occupy all dequeue threads."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from postroom.application import Handler
from postroom.hosts.dequeue.completer import Completer
from postroom.hosts.dequeue.dequeue_thread import DequeueThread
from postroom.hosts.dequeue.ordered_delivery import OrderedWorkBuffer
from postroom.hosts.dequeue.service import Disposition, Outcome, ThreadConnections
from postroom.hosts.dequeue.slow_services import SlowServiceWatcher
from postroom.hosts.dequeue.work_buffer import WorkBuffer
from postroom.messagebox.queues import ClaimedMessage, HostQueues
from tests.support.waiting import PATIENCE, wait_until
from tests.unit.hosts.dequeue.test_dequeue_thread import Handles, no_connection
from tests.unit.hosts.dequeue.test_ordered_delivery import K, joining
from tests.unit.hosts.dequeue.test_work_buffer import claimed, find_capacity, take_seqs, unpaused_buffer

SLOW, FAST, OTHER = bytes(16), bytes([1] * 16), bytes([2] * 16)


def of(service: bytes, *seqs: int) -> list[ClaimedMessage]:
    return [message._replace(service=service) for message in claimed(*seqs)]


def take_diverted_seqs(buffer: WorkBuffer, count: int) -> list[int]:
    messages = [buffer.take_diverted() for _ in range(count)]
    return [message.seq for message in messages if message is not None]


def test_messages_of_other_services_are_diverted() -> None:
    buffer = unpaused_buffer(20)
    buffer.put([*of(SLOW, 1, 2), *of(FAST, 3)], 0)
    buffer.divert(frozenset({SLOW}))
    buffer.put([*of(SLOW, 4), *of(FAST, 5)], 0)
    assert take_diverted_seqs(buffer, 2) == [3, 5]
    assert take_seqs(buffer, 3) == [1, 2, 4]


def test_a_service_that_becomes_slow_is_no_longer_diverted() -> None:
    buffer = unpaused_buffer(20)
    buffer.divert(frozenset({SLOW}))
    buffer.put([*of(FAST, 1), *of(OTHER, 2)], 0)
    buffer.divert(frozenset({SLOW, FAST}))
    assert take_diverted_seqs(buffer, 1) == [2]
    assert take_seqs(buffer, 1) == [1]


def test_diverted_messages_return_when_no_service_is_slow() -> None:
    buffer = unpaused_buffer(20)
    buffer.divert(frozenset({SLOW}))
    buffer.put([*of(SLOW, 1), *of(FAST, 2)], 0)
    buffer.divert(frozenset())
    assert sorted(take_seqs(buffer, 2)) == [1, 2]


def test_a_buffer_full_of_slow_messages_has_capacity_for_other_services() -> None:
    buffer = unpaused_buffer(10)
    buffer.put(of(SLOW, *range(10)), 0)
    assert find_capacity(buffer, 0.0)[0] == 0
    buffer.divert(frozenset({SLOW}))
    assert buffer.excluded_services == [SLOW]
    assert find_capacity(buffer, 0.0)[0] == 5
    buffer.put(of(FAST, *range(10, 16)), 0)
    assert find_capacity(buffer, 0.0)[0] == 0
    take_diverted_seqs(buffer, 1)
    assert find_capacity(buffer, 0.0)[0] == 5


def test_a_slow_service_is_claimed_while_half_of_the_buffer_is_free() -> None:
    buffer = unpaused_buffer(10)
    buffer.divert(frozenset({SLOW}))
    buffer.put(of(SLOW, *range(5)), 0)
    assert buffer.excluded_services == []
    assert find_capacity(buffer, 0.0)[0] == 5


def test_a_slow_service_is_not_claimed_between_the_high_and_the_low_watermark() -> None:
    """DEQ-17."""
    buffer = unpaused_buffer(100)
    file, http = (Handler(adapter, "send", high_watermark=8, low_watermark=4) for adapter in ("file", "http"))
    buffer.set_handlers({SLOW: file, OTHER: http})
    buffer.put([*of(SLOW, *range(8)), *of(OTHER, *range(10, 17))], 0)
    assert buffer.excluded_services == [], "no service is slow"
    buffer.divert(frozenset({SLOW, OTHER}))
    assert buffer.excluded_services == [SLOW]
    assert find_capacity(buffer, 0.0)[0] == 50
    take_seqs(buffer, 4)
    assert buffer.excluded_services == [SLOW]
    take_seqs(buffer, 1)
    assert buffer.excluded_services == []
    buffer.put(of(SLOW, *range(20, 24)), 0)
    assert buffer.excluded_services == []
    buffer.put(of(SLOW, 24), 0)
    assert buffer.excluded_services == [SLOW]


def test_the_slow_services_of_one_handler_share_its_watermarks() -> None:
    buffer = unpaused_buffer(100)
    file, http = (Handler(adapter, "send", high_watermark=8, low_watermark=4) for adapter in ("file", "http"))
    buffer.set_handlers({SLOW: file, OTHER: file, FAST: http})
    buffer.put([*of(SLOW, *range(4)), *of(OTHER, *range(10, 14)), *of(FAST, *range(20, 27))], 0)
    buffer.divert(frozenset({SLOW, OTHER, FAST}))
    assert set(buffer.excluded_services) == {SLOW, OTHER}
    buffer.set_handlers({SLOW: Handler("file", "send"), OTHER: Handler("file", "send"), FAST: http})
    assert buffer.excluded_services == [], "the watermarks can be changed while it runs"


def test_pause_drops_diverted_messages() -> None:
    buffer = unpaused_buffer(10)
    buffer.divert(frozenset({SLOW}))
    buffer.put([*of(SLOW, 1), *of(FAST, 2)], 0)
    assert sorted(message.seq for message in buffer.pause()) == [1, 2]
    assert buffer.unfinished_seqs == []


def test_spare_threads_exit_when_the_buffer_is_closed() -> None:
    buffer = unpaused_buffer(10)
    got: list[ClaimedMessage | None] = []
    thread = threading.Thread(target=lambda: got.append(buffer.take_diverted()))
    thread.start()
    buffer.close()
    thread.join(PATIENCE)
    assert got == [None]


def test_the_messages_of_an_instance_are_diverted_one_after_the_other() -> None:
    buffer = OrderedWorkBuffer(100)
    buffer.unpause()
    buffer.divert(frozenset({SLOW}))
    buffer.put([message._replace(service=FAST) for message in joining(K, 1, 2)], 0)
    assert take_diverted_seqs(buffer, 1) == [1]
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.extend(take_diverted_seqs(buffer, 1)))
    thread.start()
    assert got == []
    buffer.finish([1])
    thread.join(PATIENCE)
    assert got == [2]


class _Threads:
    """Dequeue threads and spare threads. A message is handled when its service is released."""

    def __init__(self, buffer: WorkBuffer, count: int) -> None:
        queues = HostQueues("Orders")
        self.stored: list[int] = []
        self.released: defaultdict[bytes | None, threading.Event] = defaultdict(threading.Event)
        stored = self.stored

        class Stores(Completer):
            def store(self, claimed: ClaimedMessage, outcome: Outcome) -> None:
                stored.append(claimed.seq)

        def handle(message: ClaimedMessage) -> Outcome:
            self.released[message.service].wait(PATIENCE)
            return Disposition.COMPLETE

        completer = Stores(
            connect=no_connection,
            queues=queues,
            buffer=buffer,
            on_scheduled=lambda delay: None,
            on_unblocked=lambda: None,
        )
        regular, spare = (
            [
                DequeueThread(
                    "thread",
                    take=take,
                    hand_over=buffer.hand_over,
                    service=Handles(handle),
                    completer=completer,
                    connections=ThreadConnections(no_connection, queues),
                )
                for _ in range(count)
            ]
            for take in (buffer.take, buffer.take_diverted)
        )
        self.threads = regular
        self.watcher = SlowServiceWatcher("watch", buffer=buffer, threads=regular, spare_threads=spare)


@contextmanager
def run_threads(buffer: WorkBuffer, count: int) -> Iterator[_Threads]:
    running = _Threads(buffer, count)
    for service in (SLOW, FAST, OTHER):
        running.released[service].clear()
    for thread in running.threads:
        thread.start()
    running.watcher.loop.start()
    try:
        yield running
    finally:
        for event in running.released.values():
            event.set()
        running.watcher.loop.stop()
        running.watcher.loop.join(PATIENCE)
        buffer.close()
        assert all(thread.join(PATIENCE) for thread in (*running.threads, *running.watcher.started_threads))


def test_each_slow_service_beyond_the_first_occupies_one_spare_thread() -> None:
    buffer = unpaused_buffer(100)
    with run_threads(buffer, 2) as running:
        running.released[FAST].set()
        buffer.put([*of(SLOW, *range(10)), *of(OTHER, *range(10, 20)), *of(FAST, *range(20, 30))], 0)
        wait_until(lambda: sorted(running.stored) == list(range(20, 30)))
        assert len(running.watcher.started_threads) == 2
        assert [message.service for thread in running.threads for message in thread.current] == [SLOW, SLOW]
        running.released[OTHER].set()
        running.released[SLOW].set()
        wait_until(lambda: sorted(running.stored) == list(range(30)))


def test_a_batch_is_slow_after_the_time_of_all_its_messages() -> None:
    buffer = unpaused_buffer(100)
    running = _Threads(buffer, 1)
    running.threads[0].current = of(SLOW, 1, 2, 3)
    for _ in range(3):
        running.watcher._step()
        assert not buffer._slow_services
    running.watcher._step()
    assert buffer._slow_services == {SLOW}
    running.threads[0].current = ()
    running.watcher._step()
    assert not buffer._slow_services
    for thread in running.watcher.started_threads:
        buffer.close()
        assert thread.join(PATIENCE)
