"""The memory of a host has a bounded number of instances, however many wait."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

from postroom import Message, Property, orchestrations
from postroom.hosts.orchestrations.live_instances import LiveInstances
from postroom.orchestrations import Orchestration
from postroom.orchestrations.execution import Execution
from postroom.orchestrations.journal import Started

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
    live = LiveInstances(2)
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
    live = LiveInstances(2)
    execution = Execution(orchestration, uuid.uuid4())
    execution.handle(Started(time=datetime.now(UTC), message=Message.of(b"")))
    live.put(execution, 1)
    assert live.take(execution.instance_id, orchestration, 2) is None
    assert len(live) == 0
