"""An orchestration waits until a send port has delivered its message (ACK-06)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from postroom import Message, orchestrations, testing
from postroom.errors import DeliveryFailure, RoutingFailure
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
