"""Threads take claimed instances from a queue in memory, several at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from postroom.hosts.orchestrations.instance import ActiveInstance
from postroom.hosts.orchestrations.poller import InstanceQueue
from tests.support.claimed_instances import claim
from tests.support.waiting import wait_until


def make_work(count: int) -> list[ActiveInstance]:
    return [ActiveInstance(claim()) for _ in range(count)]


def make_step() -> ActiveInstance:
    instance = ActiveInstance(claim())
    instance.runs_step = True
    return instance


def test_the_threads_that_wait_divide_the_instances() -> None:
    queue = InstanceQueue(capacity=100)
    with ThreadPoolExecutor(3) as threads:
        taken = [threads.submit(queue.take) for _ in range(3)]
        wait_until(lambda: queue.waiting_threads == 3)
        work = make_work(7)
        queue.put(work)
        shares = [future.result() for future in taken]
    assert sorted(map(len, shares)) == [2, 2, 3]
    assert {id(one) for share in shares for one in share} == {id(one) for one in work}


def test_a_thread_takes_all_instances_if_no_other_waits() -> None:
    queue = InstanceQueue(capacity=200)
    work = make_work(150)
    queue.put(work)
    assert [queue.take(), queue.take()] == [work[:100], work[100:]]


def test_an_instance_that_runs_a_step_is_taken_alone() -> None:
    queue = InstanceQueue(capacity=100)
    first, last, step = make_work(2), make_work(2), make_step()
    queue.put([*first, step, *last])
    assert [queue.take(), queue.take(), queue.take()] == [first, [step], last]


def test_a_thread_that_is_too_many_ends() -> None:
    queue = InstanceQueue(capacity=100)
    queue.put(make_work(1))
    queue.end_threads(1)
    assert queue.take() == []
    assert len(queue.take()) == 1


def test_the_queue_asks_for_more_when_half_of_it_is_free() -> None:
    asked: list[int] = []
    queue = InstanceQueue(capacity=400)
    queue.on_capacity = lambda: asked.append(len(queue))
    queue.put(make_work(400))
    queue.take()
    assert asked == []
    queue.take()
    assert asked == [200]
