"""An orchestration starts another one, suspends itself and terminates itself (ORC-52, 53)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest

from postroom import Message, orchestrations, testing
from postroom.errors import RoutingFailure
from postroom.orchestrations import Correlation
from postroom.system_properties import BTS
from tests.support.offers import Kind, Offers, OrderId, bodies, declare, message

Replies = Correlation(OrderId, filter=Kind == "reply")


async def ship(order: Message) -> None:
    await orchestrations.send(Message.of(order.context[OrderId].encode()), to="Warehouse")


SHIP = declare(ship, activate=None)


def test_an_orchestration_starts_another_one_with_a_message(crashes: bool) -> None:
    async def sell(order: Message) -> None:
        await orchestrations.start(SHIP, order)
        await orchestrations.delay(1)
        await orchestrations.send(Message.of(b"sold"), to="Buyer")

    run = testing.start(declare(sell), message("order"), crashes=crashes)
    run.advance(timedelta(seconds=1))
    assert [sent.port for sent in run.sent] == ["ship", "Buyer"]
    started = run.sent[0].message
    assert dict(started.context.promoted) == {BTS.ActivationServiceID.key: "ship"}, "nobody else receives it"
    assert bodies(testing.start(SHIP, started, crashes=crashes)) == [b"1"]


def test_an_orchestration_that_is_not_enlisted_cannot_be_started(crashes: bool) -> None:
    async def sell(order: Message) -> None:
        try:
            await orchestrations.start(SHIP, order)
        except RoutingFailure:
            await orchestrations.send(Message.of(b"not shipped"), to="Buyer")

    run = testing.start(declare(sell), message("order"), subscribed=["Buyer"], crashes=crashes)
    assert (bodies(run), run.has_ended) == ([b"not shipped"], True)


def test_a_start_in_an_atomic_function_takes_effect_at_its_end(crashes: bool) -> None:
    async def fail(order: Message) -> None:
        await orchestrations.start(SHIP, order)
        raise ValueError

    async def sell(order: Message) -> None:
        with suppress(ValueError):
            await orchestrations.atomic(fail, order)
        await orchestrations.atomic(orchestrations.start, SHIP, order)

    run = testing.start(declare(sell), message("order"), crashes=crashes)
    assert [sent.port for sent in run.sent] == ["ship"]


def test_only_another_orchestration_without_activate_can_be_started() -> None:
    """FLT-06."""
    activated = declare(ship)

    async def sell(order: Message) -> None:
        await orchestrations.start(activated, order)

    assert "is activated by messages, so it cannot be started" in str(
        testing.start(declare(sell), message("order")).error
    )

    async def repeat(order: Message) -> None:
        await orchestrations.start(declare(repeat, activate=None), order)

    assert "'repeat' cannot start itself" in str(testing.start(declare(repeat, activate=None), message("order")).error)


def test_a_terminated_instance_ends_at_once_with_all_of_its_tasks(crashes: bool) -> None:
    async def give_up() -> None:
        await orchestrations.send(Message.of(b"sent before"))
        await orchestrations.terminate("no stock")

    async def never() -> None:
        await orchestrations.delay(0)
        await orchestrations.send(Message.of(b"never"))

    async def sell(order: Message) -> None:
        replies = Replies.of(order)
        await replies.receive()
        async with orchestrations.scope() as scope:
            scope.compensate_with(orchestrations.send, Message.of(b"compensated"))
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(give_up())
                    group.create_task(never())
            finally:
                await orchestrations.send(Message.of(b"finally"))

    run = testing.start(declare(sell), message("order"), crashes=crashes)
    for body in (b"1", b"2"):
        run.publish(message("reply", body))
    assert (run.has_ended, run.termination, run.error) == (True, "no stock", None)
    assert bodies(run) == [b"sent before"]
    assert [one.data for one in run.unreceived_messages] == [b"2"]


def test_a_suspended_instance_continues_when_it_is_resumed(crashes: bool) -> None:
    async def check(order: Message) -> None:
        replies = Replies.of(order)
        await orchestrations.send(Message.of(b"before"))
        async with asyncio.timeout(60):
            await orchestrations.suspend("check the price")
            await orchestrations.send(Message.of(b"after"))
            await orchestrations.send(await replies.receive())

    run = testing.start(declare(check), message("order"), crashes=crashes)
    assert (run.suspension, bodies(run), run.has_ended) == ("check the price", [b"before"], False)
    run.publish(message("reply", b"reply"))
    run.advance(timedelta(seconds=59))
    assert bodies(run) == [b"before"]
    run.resume()
    assert (run.suspension, run.has_ended) == (None, True)
    assert bodies(run) == [b"before", b"after", b"reply"]


def test_timers_and_steps_wait_while_an_instance_is_suspended(crashes: bool) -> None:
    calls: list[int] = []

    async def work() -> None:
        await orchestrations.step(calls.append, 1)
        await orchestrations.delay(1)
        await orchestrations.send(Message.of(b"worked"))

    async def check(order: Message) -> None:
        await asyncio.gather(work(), orchestrations.suspend("one"), orchestrations.suspend("two"))

    run = testing.start(declare(check), message("order"), crashes=crashes)
    run.advance(timedelta(minutes=1))
    assert (run.suspension, calls, run.sent) == ("one", [], [])
    run.resume()
    run.advance(timedelta(seconds=1))
    assert (calls, bodies(run), run.has_ended) == ([1], [b"worked"], True)


def test_a_send_without_subscribers_is_decided_before_the_instance_is_suspended(crashes: bool) -> None:
    async def check(order: Message) -> None:
        try:
            await orchestrations.send(Message.of(b"lost"), to="Nobody")
            await orchestrations.suspend("sent")
        except RoutingFailure:
            await orchestrations.suspend("not sent")

    run = testing.start(declare(check), message("order"), subscribed=["Buyer"], crashes=crashes)
    assert run.suspension == "not sent"
    run.resume()
    assert run.has_ended


def test_an_atomic_function_cannot_suspend_or_wait_for_a_response() -> None:
    async def check(order: Message) -> None:
        await orchestrations.atomic(orchestrations.suspend, "half done")

    async def ask(order: Message) -> None:
        await orchestrations.atomic(orchestrations.request, order, to="Partner")

    assert "cannot suspend itself in an atomic function" in str(testing.start(declare(check), message("order")).error)
    assert "cannot wait for a response in an atomic" in str(testing.start(declare(ask), message("order")).error)


async def choose(order: Message) -> None:
    offers, replies = Offers.of(order), Replies.of(order)
    offer, reply, _ = await orchestrations.listen(offers.receive(), replies.receive(), orchestrations.delay(60))
    text = b"offer" if offer is not None else b"reply" if reply is not None else b"nothing"
    await orchestrations.send(Message.of(text))
    await orchestrations.send(await replies.receive())


@pytest.mark.parametrize(("first", "result"), [("offer", b"offer"), ("reply", b"reply"), (None, b"nothing")])
def test_the_first_of_several_receives_and_delays_wins(crashes: bool, first: str | None, result: bytes) -> None:
    """ORC-50: the others are cancelled, and a later message is for the next receive."""
    run = testing.start(declare(choose), message("order"), crashes=crashes)
    if first is None:
        run.advance(timedelta(minutes=1))
    else:
        run.publish(message(first))
    assert bodies(run) == [result]
    run.publish(message("reply", b"next"))
    assert (bodies(run), run.has_ended, run.unreceived_messages) == ([result, b"next"], True, [])


def test_an_exception_of_the_first_branch_is_raised_and_the_others_are_cancelled(crashes: bool) -> None:
    """ORC-45: the branches of a listen."""

    async def fail() -> None:
        await orchestrations.delay(1)
        raise ValueError

    async def check(order: Message) -> None:
        replies = Replies.of(order)
        with suppress(ValueError):
            await orchestrations.listen(replies.receive(), fail())
        async with asyncio.timeout(10):
            await orchestrations.send(await replies.receive())

    run = testing.start(declare(check), message("order"), crashes=crashes)
    run.advance(timedelta(seconds=2))
    run.publish(message("reply", b"reply"))
    assert (bodies(run), run.has_ended) == ([b"reply"], True)


def test_the_other_tasks_of_a_group_are_cancelled_when_one_fails(crashes: bool) -> None:
    """ORC-45: the tasks of a task group."""

    async def fail() -> None:
        await orchestrations.delay(1)
        raise ValueError

    async def wait() -> None:
        try:
            await orchestrations.delay(3600)
        except asyncio.CancelledError:
            await orchestrations.send(Message.of(b"cancelled"))
            raise

    async def check(order: Message) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
                group.create_task(wait())
        except ExceptionGroup:
            await orchestrations.send(Message.of(b"failed"))

    run = testing.start(declare(check), message("order"), crashes=crashes)
    run.advance(timedelta(seconds=1))
    assert (bodies(run), run.has_ended) == ([b"cancelled", b"failed"], True)


def test_carried_state_that_the_orchestration_changes_is_replayed_as_it_was_carried(crashes: bool) -> None:
    async def check(order: Message) -> None:
        state = orchestrations.carried_state()
        if state is None:
            await orchestrations.continue_with({"count": 1})
        state["count"] += 1
        await orchestrations.delay(1)
        await orchestrations.send(Message.of(str(state["count"]).encode()))

    run = testing.start(declare(check), message("order"), crashes=crashes)
    run.advance(timedelta(seconds=1))
    assert bodies(run) == [b"2"]


def test_an_instance_continues_with_a_fresh_journal_from_any_task(crashes: bool) -> None:
    async def count(number: int) -> None:
        await orchestrations.delay(1)
        await orchestrations.continue_with(number + 1)

    async def check(order: Message) -> None:
        number = orchestrations.carried_state() or 0
        if number == 3:
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(count(number))

    run = testing.start(declare(check), message("order"), crashes=crashes)
    run.advance(timedelta(seconds=3))
    assert (run.has_ended, run.error) == (True, None)
