"""Threads take claimed instances from a queue in memory, several at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from postroom.hosts.orchestrations.driven_instance import DrivenInstance
from postroom.hosts.orchestrations.instance_queue import InstanceQueue, NewWork
from postroom.orchestrations.driver import Driver
from tests.support.claimed_instances import claim


class IdleDriver:
    def run(self) -> Iterator[Any]:
        yield from ()


def make_work(count: int) -> list[NewWork]:
    return [NewWork(claimed=claim(), messages=[]) for _ in range(count)]


def make_step() -> DrivenInstance:
    instance = DrivenInstance(claim(), cast(Any, None), cast(Driver, IdleDriver()))
    instance.runs_step = True
    return instance


def test_a_thread_takes_its_share_in_order() -> None:
    queue = InstanceQueue(capacity=100)
    queue.add_threads(3)
    work = make_work(8)
    queue.put(work)
    assert [queue.take(), queue.take(), queue.take()] == [work[:3], work[3:5], work[5:6]]
    assert len(queue) == 2


def test_an_instance_that_runs_a_step_is_taken_alone() -> None:
    queue = InstanceQueue(capacity=100)
    queue.add_threads(1)
    first, last, step = make_work(2), make_work(2), make_step()
    queue.put([*first, step, *last])
    assert [queue.take(), queue.take(), queue.take()] == [first, [step], last]


def test_a_thread_that_is_too_many_ends() -> None:
    queue = InstanceQueue(capacity=100)
    queue.add_threads(2)
    queue.put(make_work(1))
    queue.add_threads(-1)
    assert queue.take() == []
    assert len(queue.take()) == 1


def test_the_queue_asks_for_more_when_half_of_it_is_free() -> None:
    asked: list[int] = []
    queue = InstanceQueue(capacity=4)
    queue.on_capacity = lambda: asked.append(len(queue))
    queue.add_threads(4)
    queue.put(make_work(4))
    queue.take()
    assert asked == []
    queue.take()
    assert asked == [2]
