"""An orchestration that runs the program in the body of its first message, and random programs for it."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from postroom import Message, orchestrations
from postroom.orchestrations import Correlation, Orchestration
from postroom.system_properties import BTS
from tests.support.orchestrations import Key, Kind

KINDS = ("red", "green", "blue")
SETS = {kind: Correlation(Key, filter=Kind == kind) for kind in KINDS}
#: The message types of messages of each kind, in turn.
TYPES = ("even", "odd")
#: Nobody subscribes to what is sent through the last one.
PORTS = ("A", "B", "Nobody")
#: The operations, with the largest value of each.
LEAVES = {
    "send": len(PORTS) - 1,
    "receive": len(KINDS) - 1,
    "take": len(KINDS) * len(TYPES) - 1,
    "delay": 5,
    "step": 3,
    "time": 0,
    "random": 0,
    "fail": 0,
}
#: The operations with blocks of operations inside, with the largest value and the number of blocks of each.
NESTED = {
    "gather": (0, 2),
    "group": (0, 3),
    "cancel": (5, 1),
    "listen": (0, 2),
    "generator": (3, 1),
    "timeout": (5, 1),
    "scope": (2, 1),
    "atomic": (0, 1),
}


@dataclass(frozen=True)
class Op:
    """An operation of a random program, with the operations inside it."""

    name: str
    value: int = 0
    inside: tuple[tuple[Op, ...], ...] = field(default=())


def _nest(inner: st.SearchStrategy[Op]) -> st.SearchStrategy[Op]:
    block = st.lists(inner, max_size=4).map(tuple)
    operations = [
        st.builds(Op, st.just(name), st.integers(0, largest), st.tuples(*[block] * blocks))
        for name, (largest, blocks) in NESTED.items()
    ]
    return st.one_of(operations)


_LEAF = st.one_of([st.builds(Op, st.just(name), st.integers(0, largest)) for name, largest in LEAVES.items()])
PROGRAMS = st.lists(st.recursive(_LEAF, _nest, max_leaves=12), max_size=6).map(tuple)
#: What happens to the instance: a message of some kind, or seconds that pass.
INPUTS = st.lists(st.one_of(st.sampled_from(KINDS), st.integers(0, 4)), max_size=12)


def choose_program(chance: random.Random, *, size: int = 4, depth: int = 3) -> tuple[Op, ...]:
    """Return a random program for runs that hypothesis does not control."""

    def choose() -> Op:
        if depth and chance.random() < 0.5:
            name, (largest, blocks) = chance.choice(list(NESTED.items()))
            inside = tuple(choose_program(chance, size=3, depth=depth - 1) for _ in range(blocks))
            return Op(name, chance.randint(0, largest), inside)
        name, largest = chance.choice(list(LEAVES.items()))
        return Op(name, chance.randint(0, largest))

    return tuple(choose() for _ in range(chance.randint(1, size)))


def write_program(block: tuple[Op, ...]) -> bytes:
    return json.dumps(block, default=lambda op: [op.name, op.value, op.inside]).encode()


def _read_block(stored: list[Any]) -> tuple[Op, ...]:
    return tuple(Op(name, value, tuple(map(_read_block, inside))) for name, value, inside in stored)


def return_place(place: str, value: int) -> str:
    """The function of each step. It fails if ``value`` is 0."""
    return f"{place} {1 // value}"


class _Program:
    """Runs a program. Each operation has a place in the program. What it sends begins with the key of the instance and
    the place, so a result that went elsewhere can be seen. ``unit`` is the number of seconds of a delay of 1."""

    def __init__(self, first: Message, unit: float) -> None:
        self.sets = {kind: correlation.of(first) for kind, correlation in SETS.items()}
        self.key = first.context[Key]
        self.unit = unit

    async def send(self, text: str, port: str = "A") -> None:
        await orchestrations.send(Message.of(f"{self.key} {text}".encode()), to=port)

    async def run_step(self, place: str, value: int) -> None:
        await self.send(f"{place} = {await orchestrations.step(return_place, place, value)}")

    async def run_block(self, block: tuple[Op, ...], place: str) -> None:
        """Run operations one after the other, also if one fails."""
        for number, op in enumerate(block):
            with suppress(Exception):
                await self.run_op(op, f"{place}.{number}")

    async def run_strictly(self, block: tuple[Op, ...], place: str) -> None:
        """Run operations until one fails. At the end, or if they are cancelled, run a step."""
        try:
            for number, op in enumerate(block):
                await self.run_op(op, f"{place}.{number}")
        finally:
            await self.run_step(f"{place}.finally", 1)

    async def iterate(self, block: tuple[Op, ...], place: str) -> AsyncIterator[int]:
        try:
            for number, op in enumerate(block):
                await self.run_op(op, f"{place}.{number}")
                yield number
        finally:
            await self.send(f"{place} closed")

    async def run_op(self, op: Op, place: str) -> None:
        match op.name:
            case "send":
                await self.send(place, PORTS[op.value])
            case "receive":
                received = await self.sets[KINDS[op.value]].receive()
                await self.send(f"{place} received {received.data.decode()}")
            case "take":
                kind, number = divmod(op.value, len(TYPES))
                taken = await self.sets[KINDS[kind]].receive(TYPES[number])
                await self.send(f"{place} took {taken.data.decode()}")
            case "delay":
                await orchestrations.delay(op.value * self.unit)
            case "step":
                await self.run_step(place, op.value)
            case "time":
                await self.send(orchestrations.now().isoformat())
            case "random":
                await self.send(f"{orchestrations.random().random()} {orchestrations.new_id()}")
            case "fail":
                raise ValueError
            case _:
                await self.run_nested(op, place)

    async def run_nested(self, op: Op, place: str) -> None:
        blocks = [(block, f"{place}.{name}") for block, name in zip(op.inside, "abc", strict=False)]
        match op.name:
            case "gather":
                await asyncio.gather(*(self.run_block(*block) for block in blocks))
            case "group":
                async with asyncio.TaskGroup() as group:
                    for block in blocks:
                        group.create_task(self.run_strictly(*block))
            case "cancel":
                task = asyncio.create_task(self.run_strictly(*blocks[0]))
                await orchestrations.delay(op.value * self.unit)
                task.cancel()
                await asyncio.wait([task])
                await self.send(f"{place} cancelled {task.cancelled()}")
            case "listen":
                await orchestrations.listen(*(self.run_block(*block) for block in blocks))
            case "generator":
                async for number in self.iterate(*blocks[0]):
                    if number == op.value:
                        break
            case "timeout":
                async with asyncio.timeout(op.value * self.unit):
                    await self.run_block(*blocks[0])
                await self.send(f"{place} in time")
            case "scope":
                async with orchestrations.scope() as scope:
                    scope.compensate_with(self.send, f"{place} compensated")
                    scope.compensate_with(self.run_step, f"{place} compensated", op.value)
                    await self.run_strictly(*blocks[0])
            case "atomic":
                await orchestrations.atomic(self.run_block, *blocks[0])


async def _run(first: Message, unit: float) -> None:
    # A time limit around a task group that has failed raises CancelledError in Python 3.11 and 3.12.
    with suppress(asyncio.CancelledError):
        await _Program(first, unit).run_block(_read_block(json.loads(first.data)), "")


async def run_program(first: Message) -> None:
    """Run the program in the body of a message."""
    await _run(first, 1.0)


async def run_program_and_wait(first: Message) -> None:
    """Run a program with short delays. Then wait, so that the journal is kept."""
    await _run(first, 0.05)
    await orchestrations.open_port().receive()


PROGRAM = Orchestration(name="run_program", version=1, function=run_program, activate=Kind == "start")
WAITING_PROGRAM = Orchestration(
    name="run_program_and_wait", version=1, function=run_program_and_wait, activate=Kind == "start"
)


def make_start(program: tuple[Op, ...], key: str) -> Message:
    return Message.of(write_program(program), promoted={Kind: "start", Key: key})


def make_input(kind: str, number: int, key: str) -> Message:
    promoted = {Kind: kind, Key: key, BTS.MessageType: TYPES[number % len(TYPES)]}
    return Message.of(f"{kind} {number}".encode(), promoted=promoted)


def find_misplaced_results(sent: Iterable[str]) -> list[str]:
    """Return what was sent with the result of a step of another place."""
    results = (text.partition(" ")[2].split(" = ") for text in sent if " = " in text)
    return [f"{place}: {result}" for place, result in results if result.rpartition(" ")[0] != place]
