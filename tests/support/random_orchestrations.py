"""An orchestration that runs the program in the body of its first message, and random programs for it."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from postroom import Message, orchestrations
from postroom.orchestrations import Correlation, Orchestration
from tests.support.orchestrations import Key, Kind

KINDS = ("red", "green", "blue")
SETS = {kind: Correlation(Key, filter=Kind == kind) for kind in KINDS}
#: Nobody subscribes to what is sent through the last one.
PORTS = ("A", "B", "Nobody")


@dataclass(frozen=True)
class Op:
    """An operation of a random program, with the operations inside it."""

    name: str
    value: int = 0
    inside: tuple[tuple[Op, ...], ...] = field(default=())


_LEAVES = st.one_of(
    st.builds(Op, st.just("send"), st.integers(0, len(PORTS) - 1)),
    st.builds(Op, st.just("receive"), st.integers(0, len(KINDS) - 1)),
    st.builds(Op, st.just("delay"), st.integers(0, 5)),
    st.builds(Op, st.just("step"), st.integers(0, 3)),
    st.builds(Op, st.sampled_from(["time", "random", "fail"])),
)


def _nest(inner: st.SearchStrategy[Op]) -> st.SearchStrategy[Op]:
    block = st.lists(inner, max_size=4).map(tuple)
    return st.one_of(
        st.builds(Op, st.just("gather"), st.just(0), st.tuples(block, block)),
        st.builds(Op, st.just("timeout"), st.integers(0, 5), st.tuples(block)),
        st.builds(Op, st.just("scope"), st.just(0), st.tuples(block)),
        st.builds(Op, st.just("atomic"), st.just(0), st.tuples(block)),
    )


PROGRAMS = st.lists(st.recursive(_LEAVES, _nest, max_leaves=12), max_size=6).map(tuple)
#: What happens to the instance: a message of some kind, or seconds that pass.
INPUTS = st.lists(st.one_of(st.sampled_from(KINDS), st.integers(0, 4)), max_size=12)


def write_program(block: tuple[Op, ...]) -> bytes:
    return json.dumps(block, default=lambda op: [op.name, op.value, op.inside]).encode()


def _read_block(stored: list[Any]) -> tuple[Op, ...]:
    return tuple(Op(name, value, tuple(map(_read_block, inside))) for name, value, inside in stored)


async def run_program(first: Message) -> None:
    """Run a program. Every message that it sends begins with the key of the instance."""
    sets = {kind: correlation.of(first) for kind, correlation in SETS.items()}
    key = first.context[Key]

    async def send(text: str, port: str = "A") -> None:
        await orchestrations.send(Message.of(f"{key} {text}".encode()), to=port)

    async def run_block(block: tuple[Op, ...]) -> None:
        for op in block:
            with suppress(Exception):
                await run_op(op)

    async def run_op(op: Op) -> None:
        match op.name:
            case "send":
                await send("send", PORTS[op.value])
            case "receive":
                await send((await sets[KINDS[op.value]].receive()).data.decode())
            case "delay":
                await orchestrations.delay(op.value)
            case "step":
                await send(str(await orchestrations.step(lambda: [op.value, 1 // op.value])))
            case "time":
                await send(orchestrations.now().isoformat())
            case "random":
                await send(f"{orchestrations.random().random()} {orchestrations.new_id()}")
            case "fail":
                raise ValueError
            case "gather":
                await asyncio.gather(*(run_block(block) for block in op.inside))
            case "timeout":
                async with asyncio.timeout(op.value):
                    await run_block(op.inside[0])
                await send("in time")
            case "scope":
                async with orchestrations.scope() as scope:
                    scope.compensate_with(send, "compensated")
                    for inner in op.inside[0]:
                        await run_op(inner)
            case "atomic":
                await orchestrations.atomic(run_block, op.inside[0])

    await run_block(_read_block(json.loads(first.data)))


PROGRAM = Orchestration(name="run_program", version=1, function=run_program, activate=Kind == "start")


def make_start(program: tuple[Op, ...], key: str) -> Message:
    return Message.of(write_program(program), promoted={Kind: "start", Key: key})


def make_input(kind: str, number: int, key: str) -> Message:
    return Message.of(f"{kind} {number}".encode(), promoted={Kind: kind, Key: key})
