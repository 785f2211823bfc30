"""Random orchestrations give the same result with and without a crash between any two persistence points."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from postroom import Message, Property, orchestrations, testing
from postroom.orchestrations import Correlation, Orchestration

Kind = Property("Random.Kind", str)
Key = Property("Random.Key", str)
KINDS = ("red", "green", "blue")
SETS = {kind: Correlation(Key, filter=Kind == kind) for kind in KINDS}
PORTS = ("A", "B", "nobody")


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
#: What happens to the instance: a message of some kind, or time that passes.
INPUTS = st.lists(st.one_of(st.sampled_from(KINDS), st.integers(0, 4)), max_size=12)


def make_orchestration(program: tuple[Op, ...]) -> Orchestration:
    async def run(first: Message) -> None:
        sets = {kind: correlation.of(first) for kind, correlation in SETS.items()}

        async def send(text: str, port: str = "A") -> None:
            await orchestrations.send(Message.of(text.encode()), to=port)

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

        await run_block(program)

    return Orchestration(name="random", version=1, function=run, activate=Kind == "start")


def observe(program: tuple[Op, ...], inputs: list[str | int], *, crashes: bool) -> tuple[object, ...]:
    run = testing.Run(
        make_orchestration(program),
        _make_message("start", 0),
        subscribed={"A", "B"},
        crashes=crashes,
        instance_id=uuid.UUID(int=7),
    )
    for number, one in enumerate(inputs, 1):
        if isinstance(one, int):
            run.advance(timedelta(seconds=one))
        else:
            run.publish(_make_message(one, number))
    sent = [(sent.port, sent.message.data, sent.message.message_id) for sent in run.sent]
    return sent, run.journal, run.has_ended, run.error, run.waits, [message.data for message in run.unreceived_messages]


def _make_message(kind: str, number: int) -> Message:
    message = Message.of(f"{kind} {number}".encode(), promoted={Kind: kind, Key: "k"})
    return Message(context=message.context, parts=message.parts, message_id=uuid.UUID(int=number + 1))


@settings(max_examples=150, deadline=None)
@given(PROGRAMS, INPUTS)
def test_a_crash_between_two_persistence_points_changes_nothing(
    program: tuple[Op, ...], inputs: list[str | int]
) -> None:
    assert observe(program, inputs, crashes=True) == observe(program, inputs, crashes=False)
