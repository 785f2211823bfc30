"""Programs that publish are throttled: they wait for a bounded time. Messages that finish work do not (THR-01)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import postroom
from postroom import Application, Client, Message, Property, Throttled, Throttling, adapters
from postroom.messagebox.connection import connect
from postroom.operations.deployment.apply import apply
from postroom.operations.throttling import set_override
from postroom.system_properties import BTS
from postroom.throttling import OverrideMode
from tests.support.contents import Contents
from tests.support.simulated_load import fix_load
from tests.support.waiting import PATIENCE

Region = Property("Orders.Region", str)


@pytest.fixture
def url(database: str) -> str:
    app = Application("orders")
    app.host("Main", throttling=Throttling(messages=10, longest_delay=1))
    app.property(Region)
    app.send_port("Europe", adapters.Null(), filter=Region == "EU")
    with connect(database) as connection:
        apply(connection, app.definition(), home=Path("/home"))
    return database


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with postroom.connect(url, throttle_wait=0.2) as opened:
        yield opened


def set_queued(url: str, queued: int) -> None:
    with connect(url) as connection:
        fix_load(connection, queued=queued)


def publish(client: Client) -> tuple[str, ...]:
    return client.publish(b"x", promoted={Region: "EU"}).subscribers


def test_a_publish_waits_for_the_delay_and_is_then_published(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_queued(url, 15)
    waits: list[float] = []
    monkeypatch.setattr("postroom.client.client.time.sleep", waits.append)
    with postroom.connect(url) as client:
        assert publish(client) == ("Europe",)
    assert sum(waits) == pytest.approx(0.5)


def test_a_publish_raises_after_the_longest_wait_and_publishes_nothing(url: str, client: Client) -> None:
    set_queued(url, 20)
    with pytest.raises(Throttled) as raised:
        publish(client)
    assert raised.value.transient
    assert raised.value.what == (
        "The MessageBox takes no more messages now: 20 messages are in the queues; the threshold is 10."
    )
    with pytest.raises(Throttled):
        client.start_request(b"x", promoted={Region: "EU"})
    with connect(url) as connection:
        assert Contents(connection).count("messages") == 0


def test_a_publish_continues_when_the_load_is_lower(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with postroom.connect(url) as client:
        set_queued(url, 20)
        monkeypatch.setattr("postroom.messagebox.throttling.load.CHECK_INTERVAL", 0)
        monkeypatch.setattr("postroom.client.client.time.sleep", lambda seconds: set_queued(url, 10))
        assert publish(client) == ("Europe",)


def test_a_response_is_not_throttled(url: str, client: Client) -> None:
    """THR-09."""
    set_queued(url, 20)
    response = Message.of(b"x", promoted={Region: "EU", BTS.RouteDirectToTP: True})
    assert client.publish(response).subscribers == ("Europe",)
    other = replace(response, message_id=Message.of(b"").message_id, context=response.context.promote(Region, "EU"))
    with pytest.raises(Throttled):
        client.publish_many([other, Message.of(b"x", promoted={Region: "EU"})])


def test_a_program_that_processes_a_message_is_not_throttled(
    url: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """THR-09: otherwise a program that empties its own queue would wait for itself."""
    monkeypatch.setattr("postroom.messagebox.throttling.load.CHECK_INTERVAL", 0)
    with client.subscribe("copies", Region == "US") as subscription:
        client.publish(b"work", promoted={Region: "US"})
        set_queued(url, 20)
        received = subscription.receive(timeout=PATIENCE)
        assert received is not None
        assert publish(client) == ("Europe",)
        received.complete()
        with pytest.raises(Throttled):
            publish(client)


def test_throttled_publishes_of_asyncio_hold_no_thread(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(seconds: float) -> None:
        raise AssertionError("A thread waits.")

    async def run() -> set[tuple[str, ...]]:
        async with await postroom.connect_async(url) as client:
            waiting = [client.publish(b"x", promoted={Region: "EU"}) for _ in range(20)]
            return {published.subscribers for published in await asyncio.gather(*waiting)}

    set_queued(url, 15)
    monkeypatch.setattr("postroom.client.client.time.sleep", fail)
    assert asyncio.run(run()) == {("Europe",)}


def test_an_override_of_the_host_ends_the_throttling_of_programs(url: str, client: Client) -> None:
    set_queued(url, 20)
    with connect(url) as connection:
        set_override(connection, "Main", publishing=OverrideMode.NEVER)
    assert publish(client) == ("Europe",)
