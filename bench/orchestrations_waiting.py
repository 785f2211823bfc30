"""Waiting instances: a wake-up among many, and the memory of a host.

    python -m bench.orchestrations_waiting

A host process with default settings runs the orchestrations, and this process publishes to them.
"""

from __future__ import annotations

import statistics
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping

import psutil

from bench.host import host_process
from bench.messagebox import MeasuredBox
from bench.orchestrations import Key, Kind, deployed_box
from bench.ratios import Result
from postroom.agent.direct.direct_agent import DirectAgent
from postroom.agent.routing.table import RoutingTable
from postroom.message import Message

_FEW, _MANY, _WAKE_UPS, _AT_A_TIME = 100, 100_000, 200, 500
_PATIENCE_SECONDS = 600.0
_LENGTH = "SELECT journal_length FROM orchestration_instances WHERE instance_id = %s"
_WAIT = """
@app.orchestration(activate=Kind == "wait", correlations=[Ticks], host="Default")
async def wait(first: Message) -> None:
    ticks = Ticks.of(first)
    while True:
        await ticks.receive()
"""


def measure() -> Iterator[Result]:
    """Yield the results of both rows."""
    with deployed_box(_WAIT) as box, host_process(box, "Default") as host:
        publisher = DirectAgent(box.connection, box.host, RoutingTable())
        few = _start_waiting(box, publisher, range(_FEW))
        among_few, memory_of_few = _measure_wake_ups(box, publisher, few), _read_memory(host)
        many = few | _start_waiting(box, publisher, range(_FEW, _MANY))
        chosen = {number: many[number] for number in range(0, _MANY, _MANY // _WAKE_UPS)}
        among_many, memory_of_many = _measure_wake_ups(box, publisher, chosen), _read_memory(host)
    yield Result(
        name=f"orchestrations: wake-up of one of {_MANY:,} waiting instances, against one of {_FEW}, median of"
        f" {_WAKE_UPS}",
        group="E",
        measured=among_many / among_few,
        bar=1.2,
        at_most=True,
        detail=f"{among_many * 1000:.1f} against {among_few * 1000:.1f} ms, from the publish to the persistence point",
    )
    yield Result(
        name=f"orchestrations: memory of a host with {_MANY:,} waiting instances, each woken once, beyond that with"
        f" {_FEW}, in MB",
        group="E",
        measured=(memory_of_many - memory_of_few) / 1e6,
        bar=50,
        at_most=True,
        detail=f"{memory_of_many / 1e6:.0f} against {memory_of_few / 1e6:.0f} MB",
    )


def _start_waiting(box: MeasuredBox, publisher: DirectAgent, numbers: range) -> dict[int, uuid.UUID]:
    """Start instances, and wake each of them once. Return the message that each was started with."""
    started = _publish(publisher, "wait", numbers)
    wait_for(lambda: _count_waiting(box, turns=1) == numbers.stop)
    _publish(publisher, "tick", numbers)
    wait_for(lambda: _count_waiting(box, turns=2) == numbers.stop)
    box.connection.execute("VACUUM ANALYZE")
    return started


def _publish(publisher: DirectAgent, kind: str, numbers: range) -> dict[int, uuid.UUID]:
    messages = {number: Message.of(b"", promoted={Kind: kind, Key: f"K{number}"}) for number in numbers}
    waiting = list(messages.values())
    for start in range(0, len(waiting), _AT_A_TIME):
        publisher.publish(waiting[start : start + _AT_A_TIME])
    return {number: message.message_id for number, message in messages.items()}


def _count_waiting(box: MeasuredBox, *, turns: int) -> object:
    return box.one(
        "SELECT count(*) FROM orchestration_instances WHERE journal_length >= %s AND claim_id IS NULL", turns
    )


def _measure_wake_ups(box: MeasuredBox, publisher: DirectAgent, started: Mapping[int, uuid.UUID]) -> float:
    """Return the median time from a publish to the persistence point of the instance."""
    times: list[float] = []
    numbers = list(started)
    for turn in range(_WAKE_UPS):
        number = numbers[turn % len(numbers)]
        instance = box.one("SELECT instance_id FROM orchestration_messages WHERE message_id = %s", started[number])
        length = box.one(_LENGTH, instance)
        at = time.perf_counter()
        publisher.publish([Message.of(b"", promoted={Kind: "tick", Key: f"K{number}"})])
        while box.one(_LENGTH, instance) == length:
            time.sleep(0.0005)
        times.append(time.perf_counter() - at)
    return statistics.median(times)


def _read_memory(host: psutil.Process) -> int:
    return int(host.memory_full_info().uss)


def wait_for(condition: Callable[[], object], *, interval: float = 0.2) -> None:
    """Wait until the condition is true. Raise TimeoutError if that takes too long."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("The instances did not get there in time.")
        time.sleep(interval)


if __name__ == "__main__":
    for result in measure():
        sys.stdout.write(f"{result}\n")
