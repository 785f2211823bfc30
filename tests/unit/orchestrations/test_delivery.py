"""An orchestration waits until a send port has delivered its message (ACK-06)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from postroom import Message, orchestrations, testing
from postroom.errors import DeliveryFailure, RoutingFailure, StateError
from postroom.system_properties import BTS
from tests.support.offers import bodies, declare


async def ship(order: Message) -> None:
    try:
        async with asyncio.timeout(60):
            await orchestrations.deliver(order, to="Warehouse")
        text = "shipped"
    except DeliveryFailure as error:
        text = error.why
    except TimeoutError:
        text = "unknown"
    except RoutingFailure:
        text = "nobody"
    await orchestrations.send(Message.of(text.encode()), to="Buyer")


def test_a_delivery_ends_with_the_acknowledgement_of_its_message(crashes: bool) -> None:
    run = testing.start(declare(ship), Message.of(b"order"), crashes=crashes)
    assert run.sent[0].message.context[BTS.AckRequired] is True
    assert (bodies(run), run.has_ended) == ([b"order"], False)
    run.acknowledge(testing.Sent(message=Message.of(b"another"), port="Warehouse"))
    assert not run.has_ended
    run.acknowledge(run.sent[0])
    assert (bodies(run), run.has_ended) == ([b"order", b"shipped"], True)


def test_a_failed_delivery_raises_with_the_reason(crashes: bool) -> None:
    run = testing.start(declare(ship), Message.of(b"order"), crashes=crashes)
    run.acknowledge(run.sent[0], failure="The receiver is down.")
    assert bodies(run) == [b"order", b"The receiver is down."]


def test_a_delivery_is_limited_by_a_timeout(crashes: bool) -> None:
    run = testing.start(declare(ship), Message.of(b"order"), crashes=crashes)
    run.advance(timedelta(minutes=1))
    assert bodies(run) == [b"order", b"unknown"]


def test_a_delivery_without_subscriber_raises(crashes: bool) -> None:
    run = testing.start(declare(ship), Message.of(b"order"), subscribed=["Buyer"], crashes=crashes)
    assert bodies(run) == [b"nobody"]


def test_deliveries_run_in_parallel(crashes: bool) -> None:
    async def ship_all(order: Message) -> None:
        await asyncio.gather(*(orchestrations.deliver(Message.of(body), to="Warehouse") for body in (b"1", b"2")))

    run = testing.start(declare(ship_all), Message.of(b"order"), crashes=crashes)
    run.acknowledge(run.sent[1])
    assert not run.has_ended
    run.acknowledge(run.sent[0])
    assert run.has_ended


def test_an_atomic_function_cannot_wait_for_a_delivery() -> None:
    async def ship_at_once(order: Message) -> None:
        await orchestrations.atomic(orchestrations.deliver, order, to="Warehouse")

    error = testing.start(declare(ship_at_once), Message.of(b"order")).error
    assert "cannot wait for a delivery in an atomic function" in str(error)


async def ask(order: Message) -> None:
    try:
        answer = await orchestrations.request(order, to="Pricing")
    except DeliveryFailure as error:
        answer = Message.of(error.why.encode())
    await orchestrations.send(answer, to="Buyer")


def test_a_failed_request_raises_with_the_reason(crashes: bool) -> None:
    run = testing.start(declare(ask), Message.of(b"order"), crashes=crashes)
    run.acknowledge(run.sent[0], failure="The receiver is down.")
    assert (bodies(run), run.has_ended, run.unreceived_messages) == ([b"order", b"The receiver is down."], True, [])


def test_a_request_gets_a_response_and_no_acknowledgement(crashes: bool) -> None:
    run = testing.start(declare(ask), Message.of(b"order"), crashes=crashes)
    with pytest.raises(StateError, match="is a request, which gets a response"):
        run.acknowledge(run.sent[0])
    run.publish(Message.of(b"9"), to=orchestrations.reply_port(run.sent[0].message))
    assert (bodies(run), run.has_ended) == ([b"order", b"9"], True)


def test_an_instance_answers_the_caller_of_its_request(crashes: bool) -> None:
    async def price(order: Message) -> None:
        await orchestrations.send(order, to="Warehouse")
        await orchestrations.send(Message.of(b"9"), to=orchestrations.reply_port(order))

    run = testing.start(declare(price), Message.of(b"order"), is_request=True, crashes=crashes)
    assert [(sent.port, sent.message.data) for sent in run.sent] == [("Warehouse", b"order"), ("caller", b"9")]
    error = testing.start(declare(price), Message.of(b"order"), crashes=crashes).error
    assert "Nobody waits for a reply" in str(error)
