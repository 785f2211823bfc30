"""The messages of one instance are handled one after the other, also while they are in memory."""

from __future__ import annotations

import threading
import uuid

from postroom.hosts.dequeue.ordered_delivery import OrderedService, OrderedWorkBuffer
from postroom.hosts.dequeue.service import Disposition, Outcome
from postroom.messagebox.queues import MAX_AHEAD, ClaimedMessage, Suspension
from postroom.messagebox.storage.copy_rows import QueueTask
from tests.support.waiting import wait_until
from tests.unit.hosts.dequeue.test_work_buffer import claimed

K, L = uuid.UUID(int=1), uuid.UUID(int=2)
CLAIM = uuid.uuid4()


def joining(instance: uuid.UUID, *seqs: int, claim_id: uuid.UUID = CLAIM) -> list[ClaimedMessage]:
    return [one._replace(instance_id=instance, task=4, claim_id=claim_id) for one in claimed(*seqs)]


def unpaused_buffer() -> OrderedWorkBuffer:
    buffer = OrderedWorkBuffer(100)
    buffer.unpause()
    return buffer


def seq_of(message: ClaimedMessage | None) -> int:
    assert message is not None
    return message.seq


def test_the_next_message_of_an_instance_is_queued_when_its_predecessor_is_finished() -> None:
    buffer = unpaused_buffer()
    buffer.put([*joining(K, 1, 2), *joining(L, 3), *joining(K, 4), *claimed(5)], 0)
    assert [seq_of(buffer.take()) for _ in range(3)] == [1, 3, 5]
    assert sorted(buffer.unfinished_seqs) == [1, 2, 3, 4, 5]
    buffer.finish([3, 5])
    late: list[int] = []
    thread = threading.Thread(target=lambda: late.append(seq_of(buffer.take())), daemon=True)
    thread.start()
    assert late == []
    buffer.finish([1])
    wait_until(lambda: late == [2], what="the second message of the instance")
    buffer.put(joining(K, 6), 0)
    buffer.finish([2])
    assert seq_of(buffer.take()) == 4
    buffer.finish([4])
    assert seq_of(buffer.take()) == 6
    buffer.finish([6])
    assert buffer.unfinished_seqs == []
    buffer.put(joining(K, 7), 0)
    assert seq_of(buffer.take()) == 7


def test_pause_drops_blocked_and_queued_messages_and_keeps_those_in_progress() -> None:
    buffer = unpaused_buffer()
    buffer.put([*joining(K, 1, 2), *joining(L, 3, 4)], 0)
    assert seq_of(buffer.take()) == 1
    assert sorted(one.seq for one in buffer.pause()) == [2, 3, 4]
    assert buffer.unfinished_seqs == [1]
    buffer.unpause()
    assert buffer.put([*joining(K, 2), *joining(L, 3)], 1)
    assert seq_of(buffer.take()) == 3
    buffer.finish([1])
    assert seq_of(buffer.take()) == 2
    assert not buffer.put(joining(K, 9), 0)


def in_order(port: uuid.UUID, *seqs: int, claim_id: uuid.UUID = CLAIM) -> list[ClaimedMessage]:
    return [one._replace(task=QueueTask.DELIVER_IN_ORDER) for one in joining(port, *seqs, claim_id=claim_id)]


def test_the_next_message_of_an_ordered_port_is_queued_when_its_predecessor_is_handled() -> None:
    buffer = unpaused_buffer()
    buffer.put([*in_order(K, 1, 2), *in_order(L, 3)], 0)
    first = buffer.take()
    assert seq_of(first) == 1
    assert seq_of(buffer.take()) == 3
    assert first is not None
    buffer.hand_over(first)
    assert seq_of(buffer.take()) == 2
    assert sorted(buffer.unfinished_seqs) == [1, 2, 3], "their outcomes are not stored yet"
    buffer.finish([1, 2, 3])
    buffer.put(in_order(K, 4), 0)
    assert seq_of(buffer.take()) == 4


def test_a_message_of_an_instance_is_not_handed_over_before_the_outcome_is_stored() -> None:
    buffer = unpaused_buffer()
    buffer.put([*joining(K, 1, 2), *claimed(3)], 0)
    first = buffer.take()
    assert first is not None
    buffer.hand_over(first)
    assert seq_of(buffer.take()) == 3
    buffer.finish([1])
    assert seq_of(buffer.take()) == 2


def test_after_a_pause_the_message_in_progress_still_precedes_those_of_the_next_claim() -> None:
    buffer = unpaused_buffer()
    buffer.put(in_order(K, 1, 2), 0)
    first = buffer.take()
    assert first is not None
    assert [one.seq for one in buffer.pause()] == [2]
    buffer.unpause()
    buffer.put([*in_order(K, 1, 2, claim_id=uuid.uuid4()), *claimed(9)], 1)
    assert seq_of(buffer.take()) == 9
    buffer.hand_over(first)
    again = buffer.take()
    assert again is not None
    assert (again.seq, again.claim_id != CLAIM) == (1, True)


def test_ports_with_many_messages_in_memory_get_one_at_a_time() -> None:
    buffer = OrderedWorkBuffer(10)
    buffer.unpause()
    assert buffer.ahead == MAX_AHEAD
    buffer.put(in_order(K, *range(12)), 0)
    assert buffer.ahead == 1
    capacity, _ = buffer.wait_for_capacity(0)
    assert capacity, "blocked messages do not keep the claimers from messages of other ports"
    buffer.pause()
    assert buffer.ahead == MAX_AHEAD


class Answers:
    """A service that returns these outcomes."""

    def __init__(self, *outcomes: Outcome | Exception) -> None:
        self.outcomes = list(outcomes)

    def prepare(self, connection: object, claimed: object) -> None: ...

    def handle(self, claimed: ClaimedMessage, connections: object) -> Outcome:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def close(self) -> None: ...


def test_a_failure_releases_the_rest_of_its_claim_and_the_next_claim_is_attempted() -> None:
    suspended = Suspension(code="NO", description="No.")
    for failure in (suspended, Disposition.RELEASE, Disposition.DISCARD):
        service = OrderedService(Answers(Disposition.FINISHED, failure, Disposition.COMPLETE, Disposition.COMPLETE))
        outcomes = [service.handle(one, None) for one in joining(K, 1, 2, 3, 4)]  # type: ignore[arg-type]
        assert outcomes == [Disposition.FINISHED, failure, Disposition.RELEASE, Disposition.RELEASE]
        assert service.handle(joining(L, 5)[0], None) is Disposition.COMPLETE  # type: ignore[arg-type]
        again = joining(K, 2, claim_id=uuid.uuid4())[0]
        assert service.handle(again, None) is Disposition.COMPLETE  # type: ignore[arg-type]


def test_a_message_that_joins_no_instance_is_not_blocked() -> None:
    service = OrderedService(Answers(Disposition.RELEASE, Disposition.COMPLETE))
    first, second = claimed(1, 2)
    assert service.handle(first, None) is Disposition.RELEASE  # type: ignore[arg-type]
    assert service.handle(second, None) is Disposition.COMPLETE  # type: ignore[arg-type]
