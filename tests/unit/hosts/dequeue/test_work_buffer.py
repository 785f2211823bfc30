"""The messages that a host instance has in memory, and those that it drops when it loses its lock."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence

import pytest

from postroom.hosts.dequeue.processing import Limits
from postroom.hosts.dequeue.work_buffer import WorkBuffer
from postroom.messagebox.queues import ClaimedMessage, QueueTask
from tests.support.waiting import PATIENCE, wait_until


def claimed(*seqs: int) -> list[ClaimedMessage]:
    one = ClaimedMessage(
        claim_id=uuid.uuid4(),
        routing_version=1,
        seq=0,
        message_id=uuid.uuid4(),
        service=None,
        instance_id=uuid.uuid4(),
        task=QueueTask.DELIVER,
        attempt=0,
        context="{}",
        part_count=0,
        body_part_id=None,
        body_part_name=None,
        content_type=None,
        charset=None,
        body=None,
        originator_sid=None,
        originator_pid=None,
    )
    return [one._replace(seq=seq) for seq in seqs]


def unpaused_buffer(capacity: int, *, threads: int = 1, batch_limit: int = 1) -> WorkBuffer:
    buffer = WorkBuffer(capacity, threads, lambda first: Limits(batch=batch_limit))
    buffer.unpause()
    return buffer


def take_seqs(buffer: WorkBuffer, count: int) -> Sequence[int]:
    return [message.seq for _ in range(count) for message in buffer.take()]


def find_capacity(buffer: WorkBuffer, timeout: float, *, when_empty: bool = False) -> tuple[int, int]:
    """Reserve capacity and return it at once, as a claimer does that found no messages."""
    capacity, generation = buffer.wait_for_capacity(timeout, when_empty=when_empty)
    buffer.release_capacity(capacity)
    return capacity, generation


def test_a_new_buffer_is_paused_and_has_no_capacity() -> None:
    buffer = WorkBuffer(10, 1)
    assert find_capacity(buffer, 0.0)[0] == 0
    buffer.unpause()
    assert find_capacity(buffer, 0.0)[0] == 5


def test_messages_are_taken_in_the_order_in_which_they_were_put() -> None:
    buffer = unpaused_buffer(10)
    buffer.put(claimed(1, 2), 0)
    buffer.put(claimed(3), 0)
    assert take_seqs(buffer, 3) == [1, 2, 3]


def test_there_is_capacity_while_at_most_half_of_the_buffer_is_used() -> None:
    buffer = unpaused_buffer(10)
    buffer.put(claimed(*range(5)), 0)
    assert find_capacity(buffer, 0.0)[0] == 5
    buffer.put(claimed(*range(5, 10)), 0)
    assert find_capacity(buffer, 0.0)[0] == 0
    take_seqs(buffer, 5)
    assert find_capacity(buffer, 0.0)[0] == 5


def test_reserved_capacity_is_not_given_to_another_claimer() -> None:
    buffer = unpaused_buffer(10)
    capacity, generation = buffer.wait_for_capacity(0.0)
    helper_capacity, _ = buffer.wait_for_capacity(0.0, when_empty=True)
    assert (capacity, helper_capacity) == (5, 5)
    buffer.put(claimed(*range(5)), generation)
    buffer.release_capacity(capacity)
    assert find_capacity(buffer, 0.0)[0] == 0, "the helper fills the other half"
    buffer.release_capacity(helper_capacity)
    assert find_capacity(buffer, 0.0)[0] == 5


def test_a_helper_gets_capacity_only_while_no_message_is_queued() -> None:
    buffer = unpaused_buffer(10)
    buffer.put(claimed(1), 0)
    assert find_capacity(buffer, 0.0, when_empty=True)[0] == 0
    take_seqs(buffer, 1)
    assert find_capacity(buffer, 0.0, when_empty=True)[0] == 5


def test_unfinished_messages_use_capacity() -> None:
    buffer = unpaused_buffer(2)
    for seq in range(5):
        buffer.put(claimed(seq), 0)
        take_seqs(buffer, 1)
    assert find_capacity(buffer, 0.0)[0] == 0
    buffer.finish([0, 1])
    assert find_capacity(buffer, 0.0)[0] == 1


def test_many_threads_take_each_message_exactly_once() -> None:
    buffer = unpaused_buffer(100, threads=4)
    got: list[int] = []

    def take_all() -> None:
        while batch := buffer.take():
            got.append(batch[0].seq)
            buffer.end(batch, is_success=True)

    threads = [threading.Thread(target=take_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    dropped: list[int] = []
    for first in range(0, 20_000, 50):
        assert buffer.put(claimed(*range(first, first + 50)), find_capacity(buffer, 30.0)[1])
        if first % 1000 == 0:
            dropped += [message.seq for message in buffer.pause()]
            buffer.unpause()
        buffer.finish(got[:])
    buffer.close()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(got + dropped) == list(range(20_000))
    buffer.finish(got)
    assert buffer.unfinished_seqs == []


def test_pause_drops_queued_messages_and_keeps_those_in_progress() -> None:
    buffer = unpaused_buffer(10)
    buffer.put(claimed(1, 2, 3), 0)
    take_seqs(buffer, 1)
    assert [message.seq for message in buffer.pause()] == [2, 3]
    assert buffer.unfinished_seqs == [1]
    assert find_capacity(buffer, 0.0)[0] == 0


def test_a_claim_from_before_a_pause_is_rejected_also_after_unpause() -> None:
    buffer = unpaused_buffer(10)
    _, generation = find_capacity(buffer, 0.0)
    buffer.pause()
    assert not buffer.put(claimed(1), generation)
    buffer.unpause()
    assert not buffer.put(claimed(1), generation)
    assert buffer.put(claimed(1), find_capacity(buffer, 0.0)[1])


def test_threads_wait_while_the_buffer_is_paused_and_exit_when_it_is_closed() -> None:
    buffer = unpaused_buffer(10)
    got: list[Sequence[ClaimedMessage]] = []
    thread = threading.Thread(target=lambda: got.append(buffer.take()))
    buffer.pause()
    thread.start()
    buffer.unpause()
    assert got == []
    buffer.close()
    thread.join(PATIENCE)
    assert got == [()]


def test_wait_for_capacity_returns_when_a_message_is_taken() -> None:
    buffer = unpaused_buffer(2)
    buffer.put(claimed(1, 2), 0)
    capacities: list[int] = []
    thread = threading.Thread(target=lambda: capacities.append(find_capacity(buffer, 30.0)[0]))
    thread.start()
    take_seqs(buffer, 1)
    thread.join(PATIENCE)
    assert capacities == [1]


@pytest.mark.parametrize("when_empty", [False, True])
def test_wait_for_capacity_returns_at_once_after_close(when_empty: bool) -> None:
    """A host stops without waiting for the timeout."""
    buffer = unpaused_buffer(2)
    buffer.pause()
    buffer.close()
    assert buffer.wait_for_capacity(threading.TIMEOUT_MAX, when_empty=when_empty)[0] == 0


def test_a_helper_is_notified_when_the_last_message_is_taken() -> None:
    buffer = unpaused_buffer(4)
    buffer.put(claimed(1, 2, 3, 4), 0)
    capacities: list[int] = []
    thread = threading.Thread(target=lambda: capacities.append(find_capacity(buffer, 30.0, when_empty=True)[0]))
    thread.start()
    take_seqs(buffer, 4)
    thread.join(PATIENCE)
    assert capacities == [2]


def test_wait_until_finished_returns_when_every_message_is_finished() -> None:
    buffer = unpaused_buffer(10)
    assert buffer.wait_until_finished(0.0)
    buffer.put(claimed(1), 0)
    take_seqs(buffer, 1)
    assert not buffer.wait_until_finished(0.0)
    threading.Thread(target=buffer.finish, args=([1],)).start()
    assert wait_until(lambda: buffer.wait_until_finished(1.0))


def test_more_messages_of_the_same_service_are_taken_without_waiting() -> None:
    buffer = unpaused_buffer(100, batch_limit=20)
    other = [message._replace(service=bytes(16)) for message in claimed(30)]
    again = [message._replace(task=QueueTask.PUBLISH) for message in claimed(32)]
    buffer.put([*claimed(*range(30)), *other, *claimed(31), *again, *claimed(*range(33, 40))], 0)
    assert [message.seq for message in buffer.take()] == list(range(20))
    assert [message.seq for message in buffer.take()] == list(range(20, 30)), "a message of another service is next"
    assert [message.seq for message in buffer.take()] == [30]
    assert [message.seq for message in buffer.take()] == [31], "the next message has another task"
    assert len(buffer.unfinished_seqs) == 40


def test_other_threads_get_their_share_of_the_queued_messages() -> None:
    for threads, size in ((5, 3), (9, 2), (11, 1)):
        buffer = unpaused_buffer(100, threads=threads, batch_limit=20)
        buffer.put(claimed(*range(11)), 0)
        assert len(buffer.take()) == size


def test_taking_several_messages_makes_room_for_a_claimer() -> None:
    buffer = unpaused_buffer(20, batch_limit=20)
    buffer.put(claimed(*range(20)), 0)
    got: list[int] = []
    claimer = threading.Thread(target=lambda: got.append(find_capacity(buffer, PATIENCE)[0]))
    claimer.start()
    wait_until(lambda: buffer._notify_at >= 0)
    buffer.take()
    claimer.join(PATIENCE)
    assert got == [10]


def test_threads_that_are_too_many_end() -> None:
    buffer = unpaused_buffer(10, threads=3)
    buffer.set_threads(2)
    buffer.put(claimed(1), 0)
    assert buffer.take() == ()
    assert take_seqs(buffer, 1) == [1]
    assert buffer.take_spare() == ()
    buffer.set_threads(4)
    buffer.put(claimed(2), 0)
    assert take_seqs(buffer, 1) == [2]
