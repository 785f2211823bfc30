"""What a host instance has in memory, and what it forgets when it loses its lock."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence

import pytest

from postroom.hosts.dequeue.work_in_hand import WorkInHand
from postroom.messagebox.queues import ClaimedMessage
from tests.support.waiting import PATIENCE, wait_until


def claimed(*seqs: int) -> list[ClaimedMessage]:
    one = ClaimedMessage(
        claim_id=uuid.uuid4(),
        routing_version=1,
        seq=0,
        message_id=uuid.uuid4(),
        service=None,
        instance_id=uuid.uuid4(),
        task=1,
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


def opened(capacity: int) -> WorkInHand:
    work = WorkInHand(capacity)
    work.reopen()
    return work


def taken(work: WorkInHand, count: int) -> Sequence[int]:
    messages = [work.take() for _ in range(count)]
    return [message.seq for message in messages if message is not None]


def find_room(work: WorkInHand, timeout: float, *, when_empty: bool = False) -> tuple[int, int]:
    """Reserve room and return it at once, as a claimer does that found no messages."""
    room, generation = work.wait_for_room(timeout, when_empty=when_empty)
    work.release_room(room)
    return room, generation


def test_it_starts_shut_and_has_no_room() -> None:
    work = WorkInHand(10)
    assert find_room(work, 0.0)[0] == 0
    work.reopen()
    assert find_room(work, 0.0)[0] == 5


def test_messages_are_taken_in_the_order_in_which_they_were_put() -> None:
    work = opened(10)
    work.put(claimed(1, 2), 0)
    work.put(claimed(3), 0)
    assert taken(work, 3) == [1, 2, 3]


def test_there_is_room_while_at_most_half_of_it_is_taken() -> None:
    work = opened(10)
    work.put(claimed(*range(5)), 0)
    assert find_room(work, 0.0)[0] == 5
    work.put(claimed(*range(5, 10)), 0)
    assert find_room(work, 0.0)[0] == 0
    taken(work, 5)
    assert find_room(work, 0.0)[0] == 5


def test_room_that_one_claimer_has_reserved_is_not_given_to_another() -> None:
    work = opened(10)
    room, generation = work.wait_for_room(0.0)
    helper_room, _ = work.wait_for_room(0.0, when_empty=True)
    assert (room, helper_room) == (5, 5)
    work.put(claimed(*range(5)), generation)
    work.release_room(room)
    assert find_room(work, 0.0)[0] == 0, "the helper fills the other half"
    work.release_room(helper_room)
    assert find_room(work, 0.0)[0] == 5


def test_a_helper_finds_room_only_when_nothing_waits() -> None:
    work = opened(10)
    work.put(claimed(1), 0)
    assert find_room(work, 0.0, when_empty=True)[0] == 0
    taken(work, 1)
    assert find_room(work, 0.0, when_empty=True)[0] == 5


def test_what_is_not_settled_takes_room_too() -> None:
    work = opened(2)
    for seq in range(5):
        work.put(claimed(seq), 0)
        taken(work, 1)
    assert find_room(work, 0.0)[0] == 0
    work.settle([0, 1])
    assert find_room(work, 0.0)[0] == 1


def test_of_what_many_threads_take_nothing_is_lost_and_nothing_taken_twice() -> None:
    """Taking needs no lock, so it races with putting, with other threads, and with being shut."""
    work = opened(100)
    got: list[int] = []

    def take_all() -> None:
        while (message := work.take()) is not None:
            got.append(message.seq)

    threads = [threading.Thread(target=take_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    forgotten: list[int] = []
    for first in range(0, 20_000, 50):
        assert work.put(claimed(*range(first, first + 50)), find_room(work, 30.0)[1])
        if first % 1000 == 0:
            forgotten += [message.seq for message in work.shut()]
            work.reopen()
        work.settle(got[:])
    work.end()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(got + forgotten) == list(range(20_000))
    work.settle(got)
    assert work.held == []


def test_shut_forgets_what_waits_and_remembers_what_is_under_way() -> None:
    work = opened(10)
    work.put(claimed(1, 2, 3), 0)
    taken(work, 1)
    assert [message.seq for message in work.shut()] == [2, 3]
    assert work.held == [1]
    assert find_room(work, 0.0)[0] == 0


def test_a_claim_from_before_it_was_shut_is_refused_even_after_it_is_open_again() -> None:
    work = opened(10)
    _, generation = find_room(work, 0.0)
    work.shut()
    assert not work.put(claimed(1), generation)
    work.reopen()
    assert not work.put(claimed(1), generation)
    assert work.put(claimed(1), find_room(work, 0.0)[1])


def test_while_it_is_shut_threads_wait_and_at_its_end_they_go() -> None:
    work = opened(10)
    got: list[ClaimedMessage | None] = []
    thread = threading.Thread(target=lambda: got.append(work.take()))
    work.shut()
    thread.start()
    work.reopen()
    assert got == []
    work.end()
    thread.join(PATIENCE)
    assert got == [None]


def test_waiting_for_room_ends_when_room_is_made() -> None:
    work = opened(2)
    work.put(claimed(1, 2), 0)
    rooms: list[int] = []
    thread = threading.Thread(target=lambda: rooms.append(find_room(work, 30.0)[0]))
    thread.start()
    taken(work, 1)
    thread.join(PATIENCE)
    assert rooms == [1]


@pytest.mark.parametrize("when_empty", [False, True])
def test_after_the_end_nobody_waits_for_room(when_empty: bool) -> None:
    """A host stops at once, and not when somebody is tired of waiting."""
    work = opened(2)
    work.shut()
    work.end()
    assert work.wait_for_room(threading.TIMEOUT_MAX, when_empty=when_empty)[0] == 0


def test_a_helper_is_told_when_the_last_one_is_taken() -> None:
    work = opened(4)
    work.put(claimed(1, 2, 3, 4), 0)
    rooms: list[int] = []
    thread = threading.Thread(target=lambda: rooms.append(find_room(work, 30.0, when_empty=True)[0]))
    thread.start()
    taken(work, 4)
    thread.join(PATIENCE)
    assert rooms == [2]


def test_it_knows_when_everything_is_settled() -> None:
    work = opened(10)
    assert work.wait_until_settled(0.0)
    work.put(claimed(1), 0)
    taken(work, 1)
    assert not work.wait_until_settled(0.0)
    threading.Thread(target=work.settle, args=([1],)).start()
    assert wait_until(lambda: work.wait_until_settled(1.0))
