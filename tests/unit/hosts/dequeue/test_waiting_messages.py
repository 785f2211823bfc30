"""Messages that wait for their receiver occupy no thread, and a service has a limit (DEQ-20)."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from postroom.hosts.dequeue.processing import UNLIMITED, Disposition, Limits, WaitingSend
from postroom.hosts.dequeue.work_buffer import SentMessages, WorkBuffer
from postroom.messagebox.queues import ClaimedMessage
from tests.support.waiting import PATIENCE
from tests.unit.hosts.dequeue.test_ordered_delivery import K, joining
from tests.unit.hosts.dequeue.test_slow_services import FAST, OTHER, SLOW, of
from tests.unit.hosts.dequeue.test_work_buffer import find_capacity, take_seqs


def limited_buffer(capacity: int, limit: int, *services: bytes, threads: int = 1, slots: int = 1_000) -> WorkBuffer:
    def get_limits(message: ClaimedMessage) -> Limits:
        return Limits(sends=limit) if message.service in services else UNLIMITED

    buffer = WorkBuffer(capacity, threads, get_limits, slots=slots)
    buffer.unpause()
    return buffer


def send(buffer: WorkBuffer, batch: Sequence[ClaimedMessage]) -> SentMessages:
    """Let messages wait for their receiver, as the thread does that has sent them."""
    sent = SentMessages(batch)
    sent.send = WaitingSend(start=lambda resume: None, finish=lambda connections: [Disposition.COMPLETE])
    sent.started = 0.0
    buffer.wait(sent)
    return sent


def send_next(buffer: WorkBuffer, count: int) -> list[SentMessages]:
    return [send(buffer, buffer.take()) for _ in range(count)]


def finish(buffer: WorkBuffer, sent: SentMessages) -> None:
    buffer.resume(sent)
    assert buffer.take() is sent
    buffer.end(sent, is_success=True)
    buffer.finish([message.seq for message in sent])


def test_a_service_at_its_limit_lets_the_others_go_first() -> None:
    buffer = limited_buffer(100, 2, SLOW)
    buffer.put([*of(SLOW, 1, 2, 3, 4), *of(FAST, 5)], 0)
    first, second = send_next(buffer, 2)
    assert take_seqs(buffer, 1) == [5]
    finish(buffer, first)
    assert take_seqs(buffer, 1) == [3]
    finish(buffer, second)
    assert take_seqs(buffer, 1) == [4]


def test_a_message_whose_receiver_has_answered_goes_first() -> None:
    buffer = limited_buffer(100, 2, SLOW)
    buffer.put([*of(SLOW, 1), *of(FAST, 2)], 0)
    [sent] = send_next(buffer, 1)
    buffer.resume(sent)
    assert buffer.take() is sent
    assert take_seqs(buffer, 1) == [2]


def test_claims_skip_a_service_whose_messages_fill_the_buffer_while_they_wait_for_a_slot() -> None:
    buffer = limited_buffer(10, 1, SLOW)
    buffer.put(of(SLOW, *range(7)), 0)
    [sent] = send_next(buffer, 1)
    buffer.put(of(FAST, 10), 0)
    assert take_seqs(buffer, 1) == [10]
    assert buffer.excluded_services == [SLOW]
    assert find_capacity(buffer, 0.0)[0] == 5
    finish(buffer, sent)
    assert take_seqs(buffer, 1) == [1]
    assert buffer.excluded_services == []


def test_messages_that_wait_for_their_receiver_use_no_capacity() -> None:
    buffer = limited_buffer(2, 100, SLOW)
    for seq in range(20):
        assert find_capacity(buffer, 0.0)[0] == 1
        buffer.put(of(SLOW, seq), 0)
        send_next(buffer, 1)
    assert buffer.unfinished_count == 20


def test_services_share_the_slots() -> None:
    """Each service gets up to four times as many slots as are free, and always one."""
    buffer = limited_buffer(100, 40, SLOW, OTHER, FAST, slots=20)
    buffer.put(of(SLOW, *range(40)), 0)
    buffer.put(of(OTHER, *range(40, 80)), 0)
    buffer.put([message._replace(service=b"end") for message in of(FAST, 99)], 0)
    taken: list[Sequence[ClaimedMessage]] = []
    while not taken or taken[-1][0].seq != 99:
        taken.append(buffer.take())
    counts = [sum(batch[0].service == service for batch in taken) for service in (SLOW, OTHER)]
    assert counts == [16, 4]
    buffer.put(of(FAST, 100), 0)
    assert take_seqs(buffer, 1) == [100]


def test_pause_drops_the_messages_that_wait_for_a_slot_and_keeps_those_that_wait_for_their_receiver() -> None:
    buffer = limited_buffer(100, 1, SLOW)
    buffer.put([*of(SLOW, 1, 2), *of(FAST, 3)], 0)
    [sent] = send_next(buffer, 1)
    assert take_seqs(buffer, 1) == [3]
    assert [message.seq for message in buffer.pause()] == [2]
    assert buffer.unfinished_seqs == [1, 3]
    finish(buffer, sent)
    assert buffer.unfinished_seqs == [3]
    buffer.unpause()
    buffer.put(of(SLOW, 4), find_capacity(buffer, 0.0)[1])
    assert take_seqs(buffer, 1) == [4], "the slot is free again"


def test_the_next_message_of_an_instance_follows_after_the_answer_also_after_a_pause() -> None:
    buffer = limited_buffer(100, 5, SLOW)
    one, two = (message._replace(service=SLOW) for message in joining(K, 1, 2))
    buffer.put([one], 0)
    [sent] = send_next(buffer, 1)
    buffer.pause()
    buffer.unpause()
    buffer.put([two], find_capacity(buffer, 0.0)[1])
    finish(buffer, sent)
    assert take_seqs(buffer, 1) == [2]


def test_threads_exit_after_the_last_answer_when_the_buffer_is_closed() -> None:
    buffer = limited_buffer(100, 5, SLOW, threads=2)
    buffer.put(of(SLOW, 1), 0)
    [sent] = send_next(buffer, 1)
    ended: list[int] = []

    def work() -> None:
        while batch := buffer.take():
            buffer.end(batch, is_success=True)
            ended.append(batch[0].seq)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    buffer.close()
    assert all(thread.is_alive() for thread in threads)
    buffer.resume(sent)
    for thread in threads:
        thread.join(PATIENCE)
    assert ended == [1]
