"""Programs answer requests with received.reply (RR-03, RR-05)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from postroom import BTS, BadValue, ClaimLost, Client, Message, NotFound, Received, StateError, Subscription
from postroom.client.async_client import connect_async
from postroom.message import FRAGMENT_SIZE, Bytes, Part
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from tests.support.box import Box, Priority, Region
from tests.support.waiting import PATIENCE, wait_until

EU = {Region: "EU"}


@pytest.fixture
def client(box: Box) -> Iterator[Client]:
    with Client(box.url) as client:
        yield client


@pytest.fixture
def pricing(client: Client) -> Iterator[Subscription]:
    with client.subscribe("pricing", Region == "EU") as subscription:
        yield subscription


def receive(subscription: Subscription) -> Received:
    received = subscription.receive(PATIENCE)
    assert received is not None
    return received


def count_waiting(box: Box) -> int:
    return int(box.count("instance subscriptions"))


def test_a_reply_answers_the_request_and_completes_it(box: Box, client: Client, pricing: Subscription) -> None:
    response = client.start_request(b"price?", promoted=EU)
    request = receive(pricing)
    assert not request.reply(b"5").suspended
    answer = response.result(PATIENCE)
    assert answer.data == b"5"
    assert answer.context[BTS.CorrelationToken] == request.message.context[BTS.CorrelationToken]
    assert not pricing._has_unfinished
    with pytest.raises(ClaimLost):
        request.complete()
    run_all_jobs_once(box.connection)
    assert (box.count("instances"), box.count("messages")) == (0, 0)


def test_a_reply_has_properties_and_parts(client: Client, pricing: Subscription) -> None:
    response = client.start_request(b"price?", promoted=EU)
    note = Part(name="note", body=Bytes(b"a note"))
    body = b"x" * (FRAGMENT_SIZE + 1)
    receive(pricing).reply(body, promoted={"Orders.Region": "US"}, content_type="text/plain", parts=[note])
    answer = response.result(PATIENCE)
    assert answer.context[Region] == "US"
    assert [part.data for part in answer.parts] == [body, b"a note"]


def test_a_reply_can_be_a_message_even_that_of_the_request(client: Client, pricing: Subscription) -> None:
    response = client.start_request(b"price?", promoted={Region: "EU"})
    receive(pricing).reply(Message.of(b"5", written={Region: "US"}))
    assert response.result(PATIENCE).context[Region] == "US"
    echo = client.start_request(b"echo", promoted={Region: "EU"})
    request = receive(pricing)
    request.reply(request.message)
    assert echo.result(PATIENCE).data == b"echo"


def test_a_message_that_is_no_request_has_no_reply(client: Client, pricing: Subscription) -> None:
    client.publish(b"news", promoted=EU)
    received = receive(pricing)
    with pytest.raises(StateError, match="is not a request"):
        received.reply(b"5")
    received.complete()


def test_the_reply_to_a_caller_that_is_gone_is_suspended(box: Box, client: Client, pricing: Subscription) -> None:
    """RR-05: as with the late response of a send port. The program continues."""
    response = client.start_request(b"price?", promoted=EU)
    request = receive(pricing)
    response.cancel()
    wait_until(lambda: count_waiting(box) == 0)
    assert request.reply(b"5").suspended
    assert box.suspended() == [("CORRELATION", False)]
    with pytest.raises(ClaimLost):
        request.complete()


def test_a_reply_after_the_lease_has_expired_is_not_published(box: Box, client: Client) -> None:
    with client.subscribe("slow", Region == "EU", lease=timedelta(seconds=1)) as subscription:
        response = client.start_request(b"price?", promoted=EU)
        late = receive(subscription)
        again: list[Received] = []

        def is_received_again() -> bool:
            run_all_jobs_once(box.connection)
            again.extend(received for received in [subscription.receive(timeout=0)] if received is not None)
            return bool(again)

        wait_until(is_received_again)
        with pytest.raises(ClaimLost, match="has expired"):
            late.reply(b"late")
        again[0].extend(timedelta(seconds=PATIENCE))
        again[0].reply(b"5")
        assert response.result(PATIENCE).data == b"5"


def test_a_request_whose_reply_cannot_be_published_can_still_be_ended(client: Client, pricing: Subscription) -> None:
    response = client.start_request(b"price?", promoted=EU)
    request = receive(pricing)
    with pytest.raises(NotFound):
        request.reply(b"5", promoted={"Orders.Unknown": 1})
    with pytest.raises(BadValue):
        request.reply(b"5", promoted={Priority: "one"})  # type: ignore[arg-type]
    assert pricing._has_unfinished
    request.reply(b"5")
    assert response.result(PATIENCE).data == b"5"


def test_a_reply_is_repeated_after_a_lost_connection(box: Box, client: Client, pricing: Subscription) -> None:
    response = client.start_request(b"price?", promoted=EU)
    request = receive(pricing)
    box.connection.execute(
        "SELECT pg_terminate_backend(pid, %s) FROM pg_stat_activity WHERE application_name = 'postroom client'"
        " AND datname = current_database()",
        (int(PATIENCE * 1000),),
    )
    request.reply(b"5")
    assert response.result(PATIENCE).data == b"5"


def test_a_task_replies_to_a_request(box: Box) -> None:
    async def answer() -> None:
        async with await connect_async(box.url) as client, await client.subscribe("pricing", Region == "EU") as pricing:
            response = await client.start_request(b"price?", promoted=EU)
            received = await pricing.receive(PATIENCE)
            assert received is not None
            await received.reply(b"5")
            assert (await response).data == b"5"

    asyncio.run(answer())
