"""Subscriptions of programs that use asyncio."""

from __future__ import annotations

import asyncio

import pytest

from postroom.client.async_client import AsyncReceived, AsyncSubscription, connect_async
from postroom.errors import MessageBoxUnavailable
from postroom.message import Message
from tests.support.box import Box, Region
from tests.support.outage import stop_database
from tests.support.waiting import PATIENCE

EU = Region == "EU"


async def publish(box: Box, body: bytes) -> None:
    async with await connect_async(box.url) as client:
        await client.publish(body, promoted={Region: "EU"})


async def complete(received: AsyncReceived | None) -> bytes:
    assert received is not None
    await received.complete()
    return received.message.data


async def wait_for_warnings(caplog: pytest.LogCaptureFixture, count: int) -> None:
    """Wait until the subscription has failed so often."""
    async with asyncio.timeout(PATIENCE):
        while sum("cannot receive" in record.message for record in caplog.records) < count:
            await asyncio.sleep(0.01)


def test_the_client_publishes_and_receives(box: Box) -> None:
    async def run() -> list[bytes]:
        async with await connect_async(box.url) as client, await client.subscribe("billing", EU) as subscription:
            assert (await client.publish(b"one", promoted={Region: "EU"})).subscribers == ("billing",)
            await client.publish_many([Message.of(b"two", promoted={Region: "EU"})])
            bodies = []
            async for received in subscription:
                bodies.append(received.message.data)
                await received.extend()
                await received.complete()
                if len(bodies) == 2:
                    break
            assert await subscription.receive(timeout=0) is None
            return bodies

    assert asyncio.run(run()) == [b"one", b"two"]


def test_a_receive_can_be_cancelled(box: Box) -> None:
    async def run() -> None:
        async with await connect_async(box.url) as client, await client.subscribe("billing", EU) as subscription:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(subscription.receive(), 0.01)
            await client.publish(b"one", promoted={Region: "EU"})
            failed = await subscription.receive(timeout=PATIENCE)
            assert failed is not None
            await failed.fail("no")

    asyncio.run(run())
    assert box.suspended() == [("PROGRAM", True)]


def test_a_subscription_waits_for_an_unavailable_messagebox(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> list[bytes]:
        async with await connect_async(box.url) as client, await client.subscribe("billing", EU) as subscription:
            bodies = []
            for body in (b"one", b"two"):
                receiving = asyncio.create_task(subscription.receive())
                with stop_database(box.url):
                    await wait_for_warnings(caplog, 4)
                    assert not receiving.done()
                caplog.clear()
                await publish(box, body)
                bodies.append(await complete(await receiving))
            return bodies

    assert asyncio.run(run()) == [b"one", b"two"]


def test_a_receive_with_a_timeout_reports_an_unavailable_messagebox(box: Box) -> None:
    async def run() -> bytes:
        async with await connect_async(box.url) as client, await client.subscribe("billing", EU) as subscription:
            with stop_database(box.url):
                for _ in range(2):
                    with pytest.raises(MessageBoxUnavailable):
                        await subscription.receive(timeout=0)
            await publish(box, b"one")
            return await complete(await subscription.receive(timeout=PATIENCE))

    assert asyncio.run(run()) == b"one"


def test_a_subscription_can_be_closed_during_an_outage(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        client = await connect_async(box.url)
        waiting, cancelled = [await client.subscribe(name, EU) for name in ("waiting", "cancelled")]
        receiving = asyncio.create_task(waiting.receive())
        with stop_database(box.url):
            await wait_for_warnings(caplog, 3)
            await abandon_receive(cancelled)
            for subscription in (waiting, cancelled):
                await subscription.close()
                assert subscription.is_closed
            assert await receiving is None
            await client.close()

    asyncio.run(run())


async def abandon_receive(subscription: AsyncSubscription) -> None:
    """Cancel a receive while its call is in a thread."""
    receiving = asyncio.create_task(subscription.receive())
    await asyncio.sleep(0)
    receiving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await receiving


def test_a_message_of_a_cancelled_receive_returns_to_the_queue_at_close(box: Box) -> None:
    async def run() -> bytes:
        async with await connect_async(box.url) as client:
            first = await client.subscribe("billing", EU)
            await publish(box, b"one")
            await abandon_receive(first)
            await first.close()
            async with await client.subscribe("billing", EU) as second:
                return await complete(await second.receive(timeout=PATIENCE))

    assert asyncio.run(run()) == b"one"


def test_close_during_a_receive_ends_it(box: Box) -> None:
    async def run() -> None:
        async with await connect_async(box.url) as client, await client.subscribe("billing", EU) as subscription:
            receiving = asyncio.create_task(subscription.receive())
            await asyncio.sleep(0)
            await subscription.close()
            assert await receiving is None

    asyncio.run(run())
