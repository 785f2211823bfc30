"""The memory of a host has a bounded number of instances of a bounded size, however many wait."""

from __future__ import annotations

import tracemalloc
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from postroom import Message, Property, orchestrations
from postroom.hosts.orchestrations.instance import LiveInstances
from postroom.orchestrations import Orchestration
from postroom.orchestrations.execution import Execution
from postroom.orchestrations.journal import Continuation, Event, Started, StepEnded

Kind = Property("Tests.Kind", str)


def test_the_instance_that_was_used_longest_ago_is_dropped() -> None:
    """ORC-34, 37: it continues from its journal."""
    closed: list[bytes] = []

    async def wait(order: Message) -> None:
        try:
            await orchestrations.delay(3600)
        finally:
            closed.append(order.data)

    orchestration = Orchestration(name="wait", version=1, function=wait, activate=Kind == "order")
    live = LiveInstances(2, max_size=1_000_000)
    ids = [uuid.uuid4() for _ in range(4)]
    for number, instance_id in enumerate(ids):
        execution = Execution(orchestration, instance_id)
        execution.handle(Started(time=datetime.now(UTC), message=Message.of(b"%d" % number)))
        live.put(execution, 1)
    assert (len(live), closed) == (2, [b"0", b"1"])
    assert live.take(ids[0], orchestration, 1) is None
    assert live.take(ids[3], orchestration, 1) is not None


def test_an_instance_that_another_host_has_continued_is_dropped() -> None:
    async def wait(order: Message) -> None:
        await orchestrations.delay(3600)

    orchestration = Orchestration(name="wait", version=1, function=wait, activate=Kind == "order")
    live = LiveInstances(2, max_size=1_000_000)
    execution = Execution(orchestration, uuid.uuid4())
    execution.handle(Started(time=datetime.now(UTC), message=Message.of(b"")))
    live.put(execution, 1)
    assert live.take(execution.instance_id, orchestration, 2) is None
    assert len(live) == 0


SIZE = 1_000_000


async def keep_result(order: Message) -> None:
    result = await orchestrations.step(str)
    await orchestrations.delay(3600)
    assert result


async def keep_message(order: Message) -> None:
    await orchestrations.delay(3600)
    assert order


async def keep_state(order: Message) -> None:
    state = orchestrations.carried_state()
    await orchestrations.delay(3600)
    assert state


def make_result() -> str:
    return "x" * SIZE


def start(function: object, number: int) -> Execution:
    """Return an instance that holds at least SIZE bytes: the result of a step, its message, or its state."""
    orchestration = Orchestration(name="wait", version=1, function=function, activate=Kind == "order")  # type: ignore[arg-type]
    carried = Continuation(journal=1, state=make_result()) if function is keep_state else None
    execution = Execution(orchestration, uuid.UUID(int=number), carried)
    events: list[Event] = [
        Started(time=datetime.now(UTC), message=Message.of(make_result().encode() if function is keep_message else b""))
    ]
    if function is keep_result:
        events.append(StepEnded(time=datetime.now(UTC), number=1, value=make_result()))
    for event in events:
        execution.handle(event)
    return execution


@pytest.fixture
def traced_memory() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced_memory")
@pytest.mark.parametrize("function", [keep_result, keep_message, keep_state])
def test_large_instances_are_dropped_before_there_are_too_many(function: object) -> None:
    live = LiveInstances(1_000, max_size=10 * SIZE)
    before, _ = tracemalloc.get_traced_memory()
    for number in range(50):
        live.put(start(function, number), 1)
    held = tracemalloc.get_traced_memory()[0] - before
    assert len(live) in (8, 9)  # each has a little more than its result
    assert live.size <= 10 * SIZE
    assert 8 * SIZE <= held <= 20 * SIZE, "a state is held twice"
    live.clear()
    assert live.size == 0
    assert tracemalloc.get_traced_memory()[0] - before < SIZE


def test_the_instance_that_was_used_last_is_kept_although_it_is_larger_than_the_limit() -> None:
    live = LiveInstances(1_000, max_size=SIZE // 2)
    first, second = start(keep_result, 1), start(keep_result, 2)
    live.put(first, 1)
    assert live.take(first.instance_id, first.orchestration, 1) is first
    assert (len(live), live.size) == (0, 0)
    live.put(first, 1)
    live.put(second, 1)
    assert len(live) == 1
    assert live.take(first.instance_id, first.orchestration, 1) is None
    live.clear()


def test_an_instance_counts_with_its_present_size() -> None:
    live = LiveInstances(1_000, max_size=10 * SIZE)
    execution = start(keep_result, 1)
    for _ in range(3):
        live.put(execution, 1)
        live.take(execution.instance_id, execution.orchestration, 1)
    live.put(execution, 1)
    assert SIZE < live.size < 2 * SIZE
    live.clear()
