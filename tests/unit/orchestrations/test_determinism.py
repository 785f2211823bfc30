"""A replay does the same in the same order: task groups, cancelled steps, generators, the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest

from postroom import Message, orchestrations, testing
from postroom.errors import StateError
from postroom.orchestrations import JournalMismatch, StepFailed
from postroom.orchestrations.argument_digests import digest_call
from tests.support.offers import Offers, bodies, declare, message

BRANCHES = 12


def fail() -> None:
    raise OSError


async def compensate_branches(order: Message) -> None:
    """Cancel branches, each of which has a step with a result of its own in its handler."""

    async def run_branch(number: int) -> None:
        try:
            await orchestrations.delay(3600)
        finally:
            result = await orchestrations.step(lambda: number)
            await orchestrations.send(Message.of(f"{number}={result}".encode()))

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(BRANCHES):
                group.create_task(run_branch(number))
            await orchestrations.step(fail)
    except* StepFailed:
        await orchestrations.send(Message.of(b"end"))


def test_a_task_group_cancels_its_tasks_in_the_order_in_which_it_created_them(crashes: bool) -> None:
    for _ in range(20):
        run = testing.start(declare(compensate_branches), message("order"), crashes=crashes)
        assert run.error is None
        assert bodies(run) == [*(b"%d=%d" % (n, n) for n in range(BRANCHES)), b"end"]


def test_tasks_of_different_instances_have_different_hashes() -> None:
    hashes: list[int] = []

    async def look(order: Message) -> None:
        task = asyncio.current_task()
        hashes.append(hash(task))
        assert task in {task}

    for _ in range(100):
        testing.start(declare(look), message("order"))
    assert len(set(hashes)) == 100


def test_coroutines_cannot_be_passed_to_as_completed() -> None:
    async def race(order: Message) -> None:
        for one in asyncio.as_completed([orchestrations.delay(1), orchestrations.delay(2)]):
            await one

    run = testing.start(declare(race), message("order"))
    assert "cannot pass coroutines to asyncio.as_completed" in str(run.error)


def test_a_replay_notices_that_a_step_has_other_arguments() -> None:
    prices = [1, 2]

    async def pay(order: Message) -> None:
        await orchestrations.step(str, prices[0])
        await orchestrations.delay(5)

    run = testing.start(declare(pay), message("order"))
    prices.reverse()
    with pytest.raises(JournalMismatch, match="calls it with other arguments"):
        testing.replay(declare(pay), run.save_journal())


@dataclass(frozen=True)
class Article:
    name: str


class Client:
    pass


@dataclass
class Gateway:
    calls: int = 0

    def charge(self, amount: int) -> None:
        self.calls += amount


def test_the_digest_of_a_call_depends_on_its_values_and_not_on_the_identity_of_objects() -> None:
    def close_over(value: object) -> str:
        return digest_call(lambda: value, ())

    assert digest_call(str, (Client(), Article("a"), {"k": [1]})) == digest_call(
        str, (Client(), Article("a"), {"k": [1]})
    )
    assert digest_call(str, (Article("a"),)) != digest_call(str, (Article("b"),))
    assert digest_call(str, ({"k": [1]},)) != digest_call(str, ({"k": [2]},))
    assert digest_call(str, (1,)) != digest_call(str, ("1",))
    assert close_over(1) != close_over(2)
    assert close_over(Client()) == close_over(Client())


def test_the_digest_of_a_call_ignores_what_its_calls_change() -> None:
    calls: list[int] = []
    count = 0

    def charge() -> None:
        nonlocal count
        count += 1
        calls.append(count)

    def look_up(key: str, cache: dict[str, int] = {}) -> int:  # noqa: B006
        return cache.setdefault(key, len(cache))

    gateway = Gateway()
    for function, args in ((charge, ()), (look_up, ("a",)), (gateway.charge, (1,))):
        before = digest_call(function, args)
        function(*args)
        assert digest_call(function, args) == before


def test_the_arguments_of_a_secret_step_are_not_in_the_journal() -> None:
    async def pay(order: Message) -> None:
        await orchestrations.step(str, "4111 1111", secret=True)
        await orchestrations.step(str, "4711")

    run = testing.start(declare(pay), message("order"))
    steps = [command for turn in run.journal for command in turn["commands"]]
    assert ["digest" in step for step in steps] == [False, True]


def test_a_step_that_is_cancelled_before_it_begins_does_not_run(crashes: bool) -> None:
    calls: list[str] = []

    async def ship(order: Message) -> None:
        async with asyncio.TaskGroup() as group:
            shipping = group.create_task(orchestrations.step(calls.append, "ship"))
            await asyncio.sleep(0)
            shipping.cancel()
            await orchestrations.send(Message.of(b"shipping cancelled"))
        await orchestrations.delay(5)
        await orchestrations.step(calls.append, "later")

    run = testing.start(declare(ship), message("order"), crashes=crashes)
    run.advance(timedelta(seconds=5))
    assert (run.has_ended, run.error, bodies(run)) == (True, None, [b"shipping cancelled"])
    assert calls == ["later"]


def test_a_cancelled_step_is_in_the_journal() -> None:
    async def ship(order: Message) -> None:
        shipping = asyncio.create_task(orchestrations.step(str, "ship"))
        await asyncio.sleep(0)
        shipping.cancel()
        await orchestrations.delay(5)

    run = testing.start(declare(ship), message("order"))
    [turn] = run.journal
    assert [(one["kind"], one["name"], one.get("step")) for one in turn["commands"]] == [
        ("step", "str", None),
        ("timer", "", None),
        ("cancel", "str", 1),
    ]
    assert run.waits == ["timer at 2026-01-01T00:00:05+00:00"]


def test_a_step_that_fails_cancels_the_steps_after_it_in_its_task_group(crashes: bool) -> None:
    calls: list[int] = []

    async def ship(order: Message) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(orchestrations.step(fail))
                group.create_task(orchestrations.step(calls.append, 1))
        except* StepFailed:
            await orchestrations.delay(5)
        await orchestrations.send(Message.of(b"end"))

    run = testing.start(declare(ship), message("order"), crashes=crashes)
    run.advance(timedelta(seconds=5))
    assert (run.error, bodies(run), calls) == (None, [b"end"], [])


class Cycle:
    """Keeps something alive until the garbage collector runs."""

    def __init__(self, kept: object) -> None:
        self.me = self
        self.kept = kept


def test_an_abandoned_generator_never_acts_as_another_instance() -> None:
    async def count() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await orchestrations.send(Message.of(b"of the generator"))

    async def abandon(order: Message) -> None:
        numbers = count()
        await anext(numbers)
        Cycle(numbers)
        await orchestrations.delay(3600)

    async def collect(order: Message) -> None:
        gc.collect()
        await orchestrations.send(Message.of(b"own"))

    run = testing.start(declare(abandon), message("order"))
    run._execution.close()
    del run
    run = testing.start(declare(collect), message("order"))
    assert bodies(run) == [b"own"]


@pytest.mark.parametrize("is_generator", [True, False])
def test_finalizers_of_the_garbage_collector_never_act_as_an_instance(is_generator: bool) -> None:
    refused: list[str] = []

    def act() -> None:
        try:
            orchestrations.new_id()
        except StateError as error:
            refused.append(error.what)

    def count() -> Iterator[int]:
        try:
            yield 1
        finally:
            act()

    class Finalized:
        def __del__(self) -> None:
            act()

    async def abandon(order: Message) -> None:
        first = orchestrations.random().random()
        if is_generator:
            numbers = count()
            next(numbers)
            Cycle(numbers)
            del numbers
        else:
            Cycle(Finalized())
        gc.collect()
        await orchestrations.send(Message.of(f"{orchestrations.new_id()} {first}".encode()))

    async def keep(order: Message) -> None:
        first = orchestrations.random().random()
        await orchestrations.send(Message.of(f"{orchestrations.new_id()} {first}".encode()))

    instance_id = uuid.uuid4()
    runs = [testing.Run(declare(one), message("order"), instance_id=instance_id) for one in (abandon, keep)]
    assert refused == ["This function works only inside an orchestration."]
    assert bodies(runs[0]) == bodies(runs[1])


def test_an_abandoned_generator_is_closed_at_the_end_of_its_instance(crashes: bool) -> None:
    async def count(name: str) -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await orchestrations.send(Message.of(f"{name} closed".encode()))

    async def break_out(order: Message) -> None:
        offers = Offers.of(order)
        for name in ("a", "b"):
            async for _ in count(name):
                break
        async for _ in count("complete"):
            pass
        await offers.receive()
        await orchestrations.send(Message.of(b"end"))

    run = testing.start(declare(break_out), message("order"), crashes=crashes)
    gc.collect()
    run.publish(message("offer"))
    assert (run.has_ended, run.error) == (True, None)
    assert bodies(run) == [b"complete closed", b"end", b"b closed", b"a closed"]


def test_an_instance_ends_after_its_other_tasks_have_cleaned_up(crashes: bool) -> None:
    calls: list[str] = []

    async def run_until_cancelled() -> None:
        try:
            await orchestrations.delay(3600)
        finally:
            await orchestrations.step(calls.append, "cleaned up")
            await orchestrations.delay(5)
            await orchestrations.send(Message.of(b"cleaned up"))

    async def leave(order: Message) -> None:
        task = asyncio.create_task(run_until_cancelled())
        await asyncio.sleep(0)
        await orchestrations.send(Message.of(f"left {task.done()}".encode()))

    run = testing.start(declare(leave), message("order"), crashes=crashes)
    assert (run.has_ended, calls) == (False, ["cleaned up"])
    run.advance(timedelta(seconds=5))
    assert (run.has_ended, run.error) == (True, None)
    assert bodies(run) == [b"left False", b"cleaned up"]


def test_the_error_of_an_orchestration_does_not_wait_for_its_other_tasks() -> None:
    async def fail_beside(order: Message) -> None:
        waiting = asyncio.create_task(orchestrations.delay(3600))
        raise ValueError(waiting.done())

    run = testing.start(declare(fail_beside), message("order"))
    assert "ValueError: False" in str(run.error)


def test_an_error_in_a_generator_that_is_closed_at_the_end_suspends_the_instance() -> None:
    async def count() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            raise ValueError("not closed")

    async def break_out(order: Message) -> None:
        async for _ in count():
            break

    run = testing.start(declare(break_out), message("order"))
    assert not run.has_ended
    assert "not closed" in str(run.error)
