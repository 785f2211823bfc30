"""The messages of one instance are handled one after the other, also while they are in memory."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence

import pytest

from postroom.hosts.dequeue.work_buffer import WorkBuffer
from postroom.messagebox.queues import MAX_AHEAD, ClaimedMessage, QueueTask
from tests.support.waiting import wait_until
from tests.unit.hosts.dequeue.test_work_buffer import claimed

K, L = uuid.UUID(int=1), uuid.UUID(int=2)
CLAIM = uuid.uuid4()
MakeMessages = Callable[..., list[ClaimedMessage]]


def joining(instance: uuid.UUID, *seqs: int, claim_id: uuid.UUID = CLAIM) -> list[ClaimedMessage]:
    return [
        one._replace(instance_id=instance, task=QueueTask.JOIN_INSTANCE, claim_id=claim_id) for one in claimed(*seqs)
    ]


def unpaused_buffer() -> WorkBuffer:
    buffer = WorkBuffer(100, 5)
    buffer.unpause()
    return buffer


def take(buffer: WorkBuffer) -> Sequence[ClaimedMessage]:
    return buffer.take()


def end(buffer: WorkBuffer, handled: Sequence[ClaimedMessage], *, is_success: bool = True) -> list[int]:
    return [message.seq for message in buffer.end(handled, is_success=is_success)]


def seq_of(taken: Sequence[ClaimedMessage]) -> int:
    (message,) = taken
    return message.seq


def test_the_next_message_of_an_instance_is_queued_when_its_predecessor_is_handled() -> None:
    buffer = unpaused_buffer()
    buffer.put([*joining(K, 1, 2), *joining(L, 3), *joining(K, 4), *claimed(5)], 0)
    first, other, unordered = take(buffer), take(buffer), take(buffer)
    assert [seq_of(one) for one in (first, other, unordered)] == [1, 3, 5]
    assert sorted(buffer.unfinished_seqs) == [1, 2, 3, 4, 5]
    end(buffer, other)
    end(buffer, unordered)
    late: list[Sequence[ClaimedMessage]] = []
    thread = threading.Thread(target=lambda: late.append(take(buffer)), daemon=True)
    thread.start()
    assert late == []
    end(buffer, first)
    wait_until(lambda: [seq_of(one) for one in late] == [2], what="the second message of the instance")
    buffer.put(joining(K, 6), 0)
    end(buffer, late[0])
    fourth = take(buffer)
    assert seq_of(fourth) == 4
    end(buffer, fourth)
    sixth = take(buffer)
    assert seq_of(sixth) == 6
    end(buffer, sixth)
    buffer.finish([1, 2, 3, 4, 5, 6])
    assert buffer.unfinished_seqs == []
    buffer.put(joining(K, 7), 0)
    assert seq_of(take(buffer)) == 7


def test_pause_drops_blocked_and_queued_messages_and_keeps_those_in_progress() -> None:
    buffer = unpaused_buffer()
    buffer.put([*joining(K, 1, 2), *joining(L, 3, 4)], 0)
    first = take(buffer)
    assert seq_of(first) == 1
    assert sorted(one.seq for one in buffer.pause()) == [2, 3, 4]
    assert buffer.unfinished_seqs == [1]
    buffer.unpause()
    assert buffer.put([*joining(K, 2), *joining(L, 3)], 1)
    assert seq_of(take(buffer)) == 3
    end(buffer, first)
    assert seq_of(take(buffer)) == 2
    assert not buffer.put(joining(K, 9), 0)


def in_order(port: uuid.UUID, *seqs: int, claim_id: uuid.UUID = CLAIM) -> list[ClaimedMessage]:
    return [one._replace(task=QueueTask.DELIVER_IN_ORDER) for one in joining(port, *seqs, claim_id=claim_id)]


@pytest.mark.parametrize("make", [in_order, joining], ids=["ordered port", "responses to one caller"])
def test_the_next_message_of_an_instance_is_queued_before_the_outcome_is_stored(make: MakeMessages) -> None:
    buffer = unpaused_buffer()
    buffer.put([*make(K, 1, 2), *make(L, 3)], 0)
    first = take(buffer)
    assert seq_of(first) == 1
    assert seq_of(take(buffer)) == 3
    end(buffer, first)
    second = take(buffer)
    assert seq_of(second) == 2
    assert sorted(buffer.unfinished_seqs) == [1, 2, 3], "their outcomes are not stored yet"
    end(buffer, second)
    buffer.put(make(K, 4), 0)
    assert seq_of(take(buffer)) == 4


def test_after_a_pause_the_message_in_progress_still_precedes_those_of_the_next_claim() -> None:
    buffer = unpaused_buffer()
    buffer.put(in_order(K, 1, 2), 0)
    first = take(buffer)
    assert [one.seq for one in buffer.pause()] == [2]
    buffer.unpause()
    buffer.put([*in_order(K, 1, 2, claim_id=uuid.uuid4()), *claimed(9)], 1)
    assert seq_of(take(buffer)) == 9
    end(buffer, first)
    (again,) = take(buffer)
    assert (again.seq, again.claim_id != CLAIM) == (1, True)


def test_ports_with_many_messages_in_memory_get_one_at_a_time() -> None:
    buffer = WorkBuffer(10, 5)
    buffer.unpause()
    assert buffer.ahead == MAX_AHEAD
    buffer.put(in_order(K, *range(12)), 0)
    assert buffer.ahead == 1
    capacity, _ = buffer.wait_for_capacity(0)
    assert capacity, "blocked messages do not keep the claimers from messages of other ports"
    buffer.pause()
    assert buffer.ahead == MAX_AHEAD


def test_a_failure_refuses_the_rest_of_its_claim_and_the_next_claim_is_attempted() -> None:
    buffer = unpaused_buffer()
    buffer.put(joining(K, 1, 2, 3, 4), 0)
    buffer.put([*joining(K, 5, 6, claim_id=uuid.uuid4()), *joining(L, 7)], 0)
    assert end(buffer, take(buffer)) == []
    assert seq_of(take(buffer)) == 7
    second = take(buffer)
    assert seq_of(second) == 2
    assert end(buffer, second, is_success=False) == [3, 4]
    assert seq_of(take(buffer)) == 5
    assert buffer.ahead == MAX_AHEAD


def test_messages_that_share_no_instance_are_not_refused() -> None:
    buffer = unpaused_buffer()
    buffer.put(claimed(1, 2), 0)
    first = take(buffer)
    assert seq_of(take(buffer)) == 2
    assert end(buffer, first, is_success=False) == []
