"""Spare threads serve the other services while slow services occupy all dequeue threads."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from postroom.application import Handler
from postroom.hosts.dequeue.completer import Completer
from postroom.hosts.dequeue.processing import Disposition, Limits, Outcome, ThreadConnections
from postroom.hosts.dequeue.subservice import DequeueThread
from postroom.hosts.dequeue.work_buffer import INTERVAL, WorkBuffer
from postroom.messagebox.queues import ClaimedMessage, HostQueues
from tests.support.waiting import PATIENCE, wait_until
from tests.unit.hosts.dequeue.test_dequeue_thread import Handles, no_connection
from tests.unit.hosts.dequeue.test_ordered_delivery import K, joining
from tests.unit.hosts.dequeue.test_work_buffer import claimed, find_capacity, take_seqs, unpaused_buffer

SLOW, FAST, OTHER = bytes(16), bytes([1] * 16), bytes([2] * 16)


class Clock:
    """The time of a buffer. It passes when a test lets it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def of(service: bytes, *seqs: int) -> list[ClaimedMessage]:
    return [message._replace(service=service) for message in claimed(*seqs)]


def occupied_buffer(capacity: int, *services: bytes, batch_limit: int = 1) -> tuple[WorkBuffer, Clock]:
    """Return a buffer of as many threads as there are services. A message of each service is in progress for so long
    that it is slow."""
    clock = Clock()
    buffer = WorkBuffer(capacity, len(services), lambda first: Limits(batch=batch_limit), clock)
    buffer.unpause()
    for number, service in enumerate(services):
        buffer.put(of(service, 1000 + number), 0)
        buffer.take()
    clock.now += 2 * INTERVAL
    return buffer, clock


def take_spare_seqs(buffer: WorkBuffer, count: int) -> list[int]:
    """Take messages as a spare thread that handles one after the other."""
    seqs = []
    for _ in range(count):
        batch = buffer.take_spare()
        seqs += [message.seq for message in batch]
        buffer.end(batch, is_success=True)
    return seqs


def test_spare_threads_take_the_messages_of_other_services() -> None:
    buffer, _ = occupied_buffer(20, SLOW)
    buffer.put([*of(SLOW, 1, 2), *of(FAST, 3)], 0)
    buffer.put([*of(SLOW, 4), *of(FAST, 5)], 0)
    assert take_spare_seqs(buffer, 2) == [3, 5]
    assert take_seqs(buffer, 3) == [1, 2, 4]


def test_one_message_of_a_service_at_a_time_is_in_progress_in_spare_threads() -> None:
    buffer, _ = occupied_buffer(20, SLOW)
    buffer.put([*of(FAST, 1, 2), *of(OTHER, 3)], 0)
    assert [message.seq for message in buffer.take_spare()] == [1]
    assert [message.seq for message in buffer.take_spare()] == [3]
    assert take_seqs(buffer, 1) == [2]


def test_a_buffer_full_of_slow_messages_has_capacity_for_other_services() -> None:
    buffer, clock = occupied_buffer(10, SLOW)
    clock.now -= 2 * INTERVAL
    buffer.put(of(SLOW, *range(10)), 0)
    assert find_capacity(buffer, 0.0)[0] == 0
    clock.now += 2 * INTERVAL
    assert buffer.excluded_services == [SLOW]
    assert find_capacity(buffer, 0.0)[0] == 5
    buffer.put(of(FAST, *range(10, 16)), 0)
    assert find_capacity(buffer, 0.0)[0] == 0
    take_spare_seqs(buffer, 1)
    assert find_capacity(buffer, 0.0)[0] == 5


def test_a_slow_service_is_claimed_while_half_of_the_buffer_is_free() -> None:
    buffer, _ = occupied_buffer(10, SLOW)
    buffer.put(of(SLOW, *range(5)), 0)
    assert buffer.excluded_services == []
    assert find_capacity(buffer, 0.0)[0] == 5


def test_a_slow_service_is_not_claimed_between_the_high_and_the_low_watermark() -> None:
    """DEQ-17."""
    buffer, clock = occupied_buffer(100, SLOW, OTHER)
    clock.now -= 2 * INTERVAL
    file, http = (Handler(adapter, "send", high_watermark=8, low_watermark=4) for adapter in ("file", "http"))
    buffer.set_handlers({SLOW: file, OTHER: http})
    buffer.put([*of(SLOW, *range(8)), *of(OTHER, *range(10, 17))], 0)
    assert buffer.excluded_services == [], "no service is slow"
    clock.now += 2 * INTERVAL
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
    buffer, _ = occupied_buffer(100, SLOW, OTHER, FAST)
    file, http = (Handler(adapter, "send", high_watermark=8, low_watermark=4) for adapter in ("file", "http"))
    buffer.set_handlers({SLOW: file, OTHER: file, FAST: http})
    buffer.put([*of(SLOW, *range(4)), *of(OTHER, *range(10, 14)), *of(FAST, *range(20, 27))], 0)
    assert set(buffer.excluded_services) == {SLOW, OTHER}
    buffer.set_handlers({SLOW: Handler("file", "send"), OTHER: Handler("file", "send"), FAST: http})
    assert buffer.excluded_services == [], "the watermarks can be changed while it runs"


def test_spare_threads_exit_when_the_buffer_is_closed() -> None:
    buffer = unpaused_buffer(10)
    got: list[Sequence[ClaimedMessage]] = []
    thread = threading.Thread(target=lambda: got.append(buffer.take_spare()))
    thread.start()
    buffer.close()
    thread.join(PATIENCE)
    assert got == [()]


def test_spare_threads_take_the_messages_of_an_instance_one_after_the_other() -> None:
    buffer, _ = occupied_buffer(100, SLOW)
    buffer.put([message._replace(service=FAST) for message in joining(K, 1, 2)], 0)
    first = buffer.take_spare()
    assert [message.seq for message in first] == [1]
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.extend(take_spare_seqs(buffer, 1)))
    thread.start()
    assert got == []
    buffer.end(first, is_success=True)
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
        self.threads = [
            DequeueThread(
                "thread",
                take=take,
                buffer=buffer,
                service=Handles(handle),
                completer=completer,
                connections=ThreadConnections(no_connection, queues),
            )
            for take in (buffer.take, buffer.take_spare)
            for _ in range(count)
        ]


@contextmanager
def run_threads(buffer: WorkBuffer, count: int) -> Iterator[_Threads]:
    running = _Threads(buffer, count)
    for service in (SLOW, FAST, OTHER):
        running.released[service].clear()
    for thread in running.threads:
        thread.start()
    try:
        yield running
    finally:
        for event in running.released.values():
            event.set()
        buffer.close()
        assert all(thread.join(PATIENCE) for thread in running.threads)


def test_each_slow_service_beyond_the_first_occupies_one_spare_thread() -> None:
    buffer = unpaused_buffer(100, threads=2)
    with run_threads(buffer, 2) as running:
        running.released[FAST].set()
        buffer.put([*of(SLOW, *range(10)), *of(OTHER, *range(10, 20)), *of(FAST, *range(20, 30))], 0)
        wait_until(lambda: sorted(running.stored) == list(range(20, 30)))
        services = [batch[0].service for batch, _ in buffer._list_in_progress()]
        assert sorted(service for service in services if service is not None) == [SLOW, SLOW, OTHER]
        running.released[OTHER].set()
        running.released[SLOW].set()
        wait_until(lambda: sorted(running.stored) == list(range(30)))


def test_a_message_that_comes_while_slow_messages_occupy_all_threads_is_handled() -> None:
    buffer = unpaused_buffer(100, threads=1)
    with run_threads(buffer, 1) as running:
        running.released[FAST].set()
        buffer.put(of(SLOW, 1), 0)
        wait_until(lambda: len(buffer._list_in_progress()) == 1)
        buffer.put(of(FAST, 2), 0)
        wait_until(lambda: running.stored == [2])


def test_a_batch_is_slow_after_the_time_of_all_its_messages() -> None:
    clock = Clock()
    buffer = WorkBuffer(100, 1, lambda first: Limits(batch=3), clock)
    buffer.unpause()
    buffer.put(of(SLOW, 1, 2, 3), 0)
    batch = buffer.take()
    clock.now += 2.9 * INTERVAL
    assert not buffer._find_slow_services()
    clock.now += 0.2 * INTERVAL
    assert buffer._find_slow_services() == {SLOW}
    buffer.end(batch, is_success=True)
    assert not buffer._find_slow_services()
