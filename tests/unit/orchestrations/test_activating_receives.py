"""Orchestrations with several activating receives, and receives that take some messages only (ORC-01, 23, 50)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from postroom import Application, Message, orchestrations, testing
from postroom.errors import StateError
from postroom.filters.expression import Filter
from postroom.orchestrations import Orchestration, listen, receive
from postroom.schemas import Schema
from postroom.system_properties import BTS
from tests.support.offers import Kind, Offers, OrderId, bodies, declare, message

IsOrder, IsPayment = Kind == "order", Kind == "payment"
Order = Schema(message_type="http://example.org#Order")


def declare_all(
    function: Callable[[], Coroutine[Any, Any, None]],
    *activate: Filter | Schema | str,
    convoy: Sequence[Any] = (OrderId,),
) -> Orchestration:
    app = Application("tests")
    return app.orchestration(activate=list(activate) or [IsOrder, IsPayment], convoy=convoy)(function)


def typed(message_type: str, body: bytes = b"") -> Message:
    return Message.of(body, promoted={BTS.MessageType: message_type, OrderId: "1"})


async def ship() -> None:
    order, payment = await asyncio.gather(receive(IsOrder), receive(IsPayment))
    await orchestrations.send(Message.of(order.data + b" " + payment.data), to="Out")


@pytest.mark.parametrize("kinds", [("order", "payment"), ("payment", "order")])
def test_any_message_of_a_parallel_convoy_activates_it_and_it_waits_for_the_others(
    kinds: tuple[str, str], crashes: bool
) -> None:
    """ORC-23."""
    run = testing.start(declare_all(ship), message(kinds[0], kinds[0].encode()), crashes=crashes)
    assert (run.sent, run.has_ended, len(run.waits)) == ([], False, 1)
    assert f"== '{kinds[1]}'" in run.waits[0]
    run.publish(message(kinds[0], b"another"))
    assert not run.has_ended
    run.publish(message(kinds[1], kinds[1].encode()))
    assert (bodies(run), run.has_ended) == ([b"order payment"], True)
    assert [one.data for one in run.unreceived_messages] == [b"another"]


def test_branches_of_a_parallel_convoy_act_as_soon_as_their_message_comes(crashes: bool) -> None:
    async def take(kind: str) -> None:
        received = await receive(Kind == kind)
        await orchestrations.send(Message.of(received.data), to="Out")

    async def ship_in_parts() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(take("order"))
            tasks.create_task(take("payment"))

    run = testing.start(declare_all(ship_in_parts), message("payment", b"paid"), crashes=crashes)
    assert bodies(run) == [b"paid"]
    run.publish(message("order", b"ordered"))
    assert (bodies(run), run.has_ended) == ([b"paid", b"ordered"], True)


async def handle() -> None:
    order, payment = await listen(receive(IsOrder), receive(IsPayment))
    await orchestrations.send(Message.of(b"order" if payment is None else b"payment"), to="Out")
    assert (order is None) is not (payment is None)


@pytest.mark.parametrize("kind", ["order", "payment"])
@pytest.mark.parametrize("convoy", [(), (OrderId,)])
def test_listen_says_which_message_has_activated_the_instance(kind: str, convoy: Sequence[Any], crashes: bool) -> None:
    """ORC-50."""
    run = testing.start(declare_all(handle, convoy=convoy), message(kind), crashes=crashes)
    assert (bodies(run), run.has_ended, run.error) == ([kind.encode()], True, None)


def test_the_journal_says_which_receive_has_activated_the_instance() -> None:
    run = testing.start(declare_all(ship, Order, IsPayment), message("payment"))
    assert run.journal[0]["event"]["activation"] == "Tests.Kind == 'payment'"
    testing.replay(declare_all(ship, Order, IsPayment), run.save_journal())
    run = testing.start(declare_all(ship, Order, IsPayment), typed("http://example.org#Order"))
    assert run.journal[0]["event"]["activation"] == "BTS.MessageType == 'http://example.org#Order'"
    assert "activation" not in testing.start(declare(collect), message("order")).journal[0]["event"]


def test_a_receive_by_type_takes_messages_of_this_type_only(crashes: bool) -> None:
    async def sort() -> None:
        memo, order = await receive("memo"), await receive(Order)
        others = [await receive() for _ in range(2)]
        await orchestrations.send(Message.of(b" ".join(one.data for one in (memo, order, *others))), to="Out")

    run = testing.start(declare_all(sort, Order, "memo", IsOrder), message("order", b"1"), crashes=crashes)
    run.publish(typed("http://example.org#Order", b"2"))
    run.publish(message("order", b"3"))
    run.publish(typed("memo", b"4"))
    assert (bodies(run), run.has_ended) == ([b"4 2 1 3"], True)


async def collect(order: Message) -> None:
    offers = Offers.of(order)
    late, first = await asyncio.gather(offers.receive(BTS.MessageType == "late"), offers.receive("early"))
    rest = await offers.receive()
    await orchestrations.send(Message.of(b" ".join(one.data for one in (late, first, rest))), to="Out")


def test_a_receive_of_a_correlation_set_takes_messages_of_one_type(crashes: bool) -> None:
    def offer(message_type: str, body: bytes) -> Message:
        return Message.of(body, promoted={BTS.MessageType: message_type, OrderId: "1", Kind: "offer"})

    run = testing.start(declare(collect), message("order"), crashes=crashes)
    run.publish(offer("other", b"1"))
    run.publish(offer("early", b"2"))
    run.publish(offer("early", b"3"))
    assert run.sent == []
    run.publish(offer("late", b"4"))
    assert (bodies(run), run.has_ended) == ([b"4 2 1"], True)
    assert [one.data for one in run.unreceived_messages] == [b"3"]


def test_a_message_that_a_cancelled_receive_had_stays_for_one_that_takes_it(crashes: bool) -> None:
    async def wait_for_either() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(60):
                await receive(Kind == "nothing")
        order = await receive(IsOrder)
        await orchestrations.send(Message.of(order.data), to="Out")

    run = testing.start(declare_all(wait_for_either), message("order", b"1"), crashes=crashes)
    run.advance(timedelta(seconds=60))
    assert (bodies(run), run.has_ended) == ([b"1"], True)


def test_a_receive_that_waits_for_ever_without_a_convoy_is_an_error(crashes: bool) -> None:
    run = testing.start(declare_all(ship, convoy=()), message("payment"), crashes=crashes)
    assert "'ship' would wait for ever in receive()" in str(run.error)

    async def receive_twice() -> None:
        await receive()
        await receive()

    run = testing.start(declare_all(receive_twice, convoy=()), message("payment"), crashes=crashes)
    assert "'receive_twice' is no convoy, so there is nothing to receive" in str(run.error)


def test_a_fresh_journal_does_not_receive_the_first_message_again(crashes: bool) -> None:
    async def count() -> None:
        total = orchestrations.carried_state() or 0
        for _ in range(2):
            total += int((await receive()).data)
        if total < 10:
            await orchestrations.continue_with(total)
        await orchestrations.send(Message.of(b"%d" % total), to="Out")

    run = testing.start(declare_all(count), message("order", b"1"), crashes=crashes)
    for number in (2, 3, 4):
        run.publish(message("payment", b"%d" % number))
    assert (bodies(run), run.has_ended) == ([b"10"], True)


def test_an_instance_cannot_lose_its_first_message_with_its_journal() -> None:
    async def forget() -> None:
        await orchestrations.continue_with(None)

    assert "no receive has taken" in str(testing.start(declare_all(forget), message("order")).error)


def test_a_test_cannot_start_an_orchestration_with_a_message_that_does_not_activate_it() -> None:
    with pytest.raises(StateError, match="does not activate the orchestration 'ship'"):
        testing.start(declare_all(ship), message("offer"))


def test_an_orchestration_with_several_activating_receives_cannot_be_called() -> None:
    ship_it = declare_all(ship)

    async def call(order: Message) -> None:
        await ship_it(order)

    assert "'ship' cannot be called" in str(testing.start(declare(call), message("order")).error)


@pytest.mark.parametrize("only", ["Kind == 'order'", "", 7, [IsOrder]])
def test_what_a_receive_cannot_take_is_an_error(only: Any) -> None:
    async def wait() -> None:
        await receive(only)

    assert "A receive cannot take" in str(testing.start(declare_all(wait), message("order")).error)
