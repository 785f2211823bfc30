"""Messages of one instance are handed out one after the other, in memory too."""

from __future__ import annotations

import threading
import uuid

from postroom.hosts.dequeue.in_order import InOrder
from postroom.hosts.dequeue.instance_work import InstanceWork
from postroom.hosts.dequeue.outcomes import Outcome, Verdict
from postroom.messagebox.queues import ClaimedMessage, Suspension
from tests.support.waiting import wait_until
from tests.unit.hosts.dequeue.test_work_in_hand import claimed

K, L = uuid.UUID(int=1), uuid.UUID(int=2)
CLAIM = uuid.uuid4()


def joining(instance: uuid.UUID, *seqs: int, claim_id: uuid.UUID = CLAIM) -> list[ClaimedMessage]:
    return [one._replace(instance_id=instance, task=4, claim_id=claim_id) for one in claimed(*seqs)]


def opened() -> InstanceWork:
    work = InstanceWork(100)
    work.reopen()
    return work


def seq_of(message: ClaimedMessage | None) -> int:
    assert message is not None
    return message.seq


def test_the_next_of_an_instance_comes_when_the_one_before_is_settled() -> None:
    work = opened()
    work.put([*joining(K, 1, 2), *joining(L, 3), *joining(K, 4), *claimed(5)], 0)
    assert [seq_of(work.take()) for _ in range(3)] == [1, 3, 5]
    assert sorted(work.held) == [1, 2, 3, 4, 5]
    work.settle([3, 5])
    late: list[int] = []
    thread = threading.Thread(target=lambda: late.append(seq_of(work.take())), daemon=True)
    thread.start()
    assert late == []
    work.settle([1])
    wait_until(lambda: late == [2], what="the second of the instance")
    work.put(joining(K, 6), 0)
    work.settle([2])
    assert seq_of(work.take()) == 4
    work.settle([4])
    assert seq_of(work.take()) == 6
    work.settle([6])
    assert work.held == []
    work.put(joining(K, 7), 0)
    assert seq_of(work.take()) == 7


def test_what_is_behind_is_forgotten_with_what_waits_and_what_is_worked_on_is_not() -> None:
    work = opened()
    work.put([*joining(K, 1, 2), *joining(L, 3, 4)], 0)
    assert seq_of(work.take()) == 1
    assert sorted(one.seq for one in work.shut()) == [2, 3, 4]
    assert work.held == [1]
    work.reopen()
    assert work.put([*joining(K, 2), *joining(L, 3)], 1)
    assert seq_of(work.take()) == 3
    work.settle([1])
    assert seq_of(work.take()) == 2
    assert not work.put(joining(K, 9), 0)


class Answers:
    """A service that gives these outcomes."""

    def __init__(self, *outcomes: Outcome | Exception) -> None:
        self.outcomes = list(outcomes)

    def prepare(self, connection: object, claimed: object) -> None: ...

    def handle(self, claimed: ClaimedMessage, connections: object) -> Outcome:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def close(self) -> None: ...


def test_after_a_failure_the_rest_of_the_claim_goes_back_and_the_next_claim_is_tried() -> None:
    suspended = Suspension(code="NO", description="No.")
    for failure in (suspended, Verdict.RELEASE, Verdict.DISCARD):
        service = InOrder(Answers(Verdict.SETTLED, failure, Verdict.COMPLETE, Verdict.COMPLETE))
        outcomes = [service.handle(one, None) for one in joining(K, 1, 2, 3, 4)]  # type: ignore[arg-type]
        assert outcomes == [Verdict.SETTLED, failure, Verdict.RELEASE, Verdict.RELEASE]
        assert service.handle(joining(L, 5)[0], None) is Verdict.COMPLETE  # type: ignore[arg-type]
        again = joining(K, 2, claim_id=uuid.uuid4())[0]
        assert service.handle(again, None) is Verdict.COMPLETE  # type: ignore[arg-type]


def test_a_message_that_joins_no_instance_is_not_held_back() -> None:
    service = InOrder(Answers(Verdict.RELEASE, Verdict.COMPLETE))
    first, second = claimed(1, 2)
    assert service.handle(first, None) is Verdict.RELEASE  # type: ignore[arg-type]
    assert service.handle(second, None) is Verdict.COMPLETE  # type: ignore[arg-type]
