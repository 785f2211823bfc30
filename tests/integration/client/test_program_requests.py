"""Requests of programs: client.request publishes and waits for the response (RR-02 … 11)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor

import pytest

from postroom import BTS, Client, KeyReused, Message, NoResponse, PublishFailed, ResponseTimeout, StateError
from postroom.client.async_client import connect_async
from postroom.client.subscription import Received
from postroom.message import FRAGMENT_SIZE, Bytes, Part
from postroom.messagebox.connection import connect, read_value
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from tests.integration.hosts.conftest import StartHost
from tests.support.box import Box, Region
from tests.support.contents import Contents
from tests.support.recording_adapter import BlockedSend, fail_always
from tests.support.two_way import AnsweringAdapter, make_two_way
from tests.support.waiting import PATIENCE, wait_until

EU = {Region: "EU"}


@pytest.fixture
def client(box: Box) -> Iterator[Client]:
    with Client(box.url) as client:
        yield client


class Answers:
    """A program that receives the requests, and answers them."""

    def __init__(self, box: Box) -> None:
        self._client = Client(box.url)
        self._subscription = self._client.subscribe("pricing", Region == "EU")

    def receive(self) -> Received:
        received = self._subscription.receive(PATIENCE)
        assert received is not None
        return received

    def answer(self, request: Received, body: bytes, parts: Sequence[Part] = ()) -> None:
        token = request.message.context[BTS.EpmRRCorrelationToken]
        reply = {BTS.EpmRRCorrelationToken: token, BTS.RouteDirectToTP: True}
        self._client.publish(body, promoted=reply, parts=parts)

    def close(self) -> None:
        self._subscription.close()
        self._client.close()


@pytest.fixture
def answers(box: Box) -> Iterator[Answers]:
    program = Answers(box)
    yield program
    program.close()


def add_pricing(box: Box) -> None:
    box.add_port("Pricing", "Orders.Region == 'EU'", retry_count=0)
    make_two_way(box, "Pricing")


def count_waiting(box: Box) -> int:
    return int(box.count("instance subscriptions"))


def test_the_response_of_a_send_port_returns_to_the_program(box: Box, client: Client, start_host: StartHost) -> None:
    add_pricing(box)
    start_host(AnsweringAdapter(lambda body: b'{"region": "EU", "total": 5}'))
    response = client.request(b'{"region": "EU"}', promoted=EU, timeout=PATIENCE)
    assert response.data == b'{"region": "EU", "total": 5}'
    assert response.context[BTS.SPName] == "Pricing"
    assert count_waiting(box) == 0
    wait_until(lambda: box.count("instances") == 0)
    run_all_jobs_once(box.connection)
    assert check(box.connection) == []
    assert box.count("messages") == 0


def test_each_of_many_requests_gets_its_own_response(box: Box, client: Client, start_host: StartHost) -> None:
    add_pricing(box)
    start_host(AnsweringAdapter(lambda body: body.replace(b'"n"', b'"answer"')))
    requests = [client.start_request(b'{"n": %d}' % n, to="Pricing", timeout=PATIENCE) for n in range(30)]
    assert [request.result(PATIENCE).data for request in requests] == [b'{"answer": %d}' % n for n in range(30)]
    assert count_waiting(box) == 0


def test_a_program_answers_the_request_of_another_program(client: Client, answers: Answers) -> None:
    response = client.start_request(b"price?", promoted=EU)
    request = answers.receive()
    assert request.message.context[BTS.IsRequestResponse] is True
    answers.answer(request, b"5")
    assert response.result(PATIENCE).data == b"5"


def test_a_large_response_is_read_before_it_is_completed(box: Box, client: Client, answers: Answers) -> None:
    response = client.start_request(b"price?", promoted=EU)
    request = answers.receive()
    answers.answer(request, b"x" * (FRAGMENT_SIZE + 1))
    request.complete()
    read = response.result(PATIENCE)
    run_all_jobs_once(box.connection)
    assert box.count("parts") == 0
    assert read.data == b"x" * (FRAGMENT_SIZE + 1)


def test_a_request_holds_no_transaction_while_it_waits(box: Box, client: Client, answers: Answers) -> None:
    response = client.start_request(b"price?", promoted=EU)
    request = answers.receive()
    states = "SELECT DISTINCT state FROM pg_stat_activity WHERE application_name = 'postroom client' AND datname ="
    wait_until(lambda: box.one(f"{states} current_database() AND state <> 'idle'") is None)
    client.publish(b"", promoted=EU)
    answers.answer(request, b"5")
    assert response.result(PATIENCE).data == b"5"


def test_a_request_without_a_response_in_time_raises_and_the_late_response_is_suspended(
    box: Box, client: Client, start_host: StartHost
) -> None:
    add_pricing(box)
    adapter = AnsweringAdapter()
    adapter.behave = blocked = BlockedSend()
    start_host(adapter)
    with pytest.raises(ResponseTimeout, match=r"no response within 0\.1 s"):
        client.request(b"{}", promoted=EU, timeout=0.1)
    wait_until(lambda: count_waiting(box) == 0)
    blocked.released.set()
    wait_until(box.suspended)
    assert box.suspended() == [("CORRELATION", False)]


def test_a_cancelled_request_waits_no_longer(box: Box, client: Client, answers: Answers) -> None:
    response = client.start_request(b"price?", promoted=EU)
    request = answers.receive()
    assert response.cancel()
    wait_until(lambda: count_waiting(box) == 0)
    with pytest.raises(PublishFailed):
        answers.answer(request, b"5")
    with pytest.raises(CancelledError):
        response.result()


def test_a_request_that_is_cancelled_before_it_is_published_waits_no_longer(
    box: Box, client: Client, answers: Answers
) -> None:
    response: Future[Message] = Future()
    response.cancel()
    client.start_request(b"price?", promoted=EU, response=response)
    wait_until(lambda: count_waiting(box) == 0)
    assert answers.receive().message.data == b"price?"


def test_a_request_with_a_key_survives_lost_connections(box: Box, client: Client, answers: Answers) -> None:
    first = client.start_request(b"price?", promoted=EU)
    request = answers.receive()
    answers.answer(request, b"5")
    request.complete()
    assert first.result(PATIENCE).data == b"5"
    box.connection.execute(
        "SELECT pg_terminate_backend(pid, %s) FROM pg_stat_activity WHERE application_name = 'postroom client'"
        " AND datname = current_database()",
        (PATIENCE * 1000,),
    )
    client.start_request(b"price again?", promoted=EU, key="again")
    assert answers.receive().message.data == b"price again?"


def test_a_second_response_is_suspended(box: Box, client: Client, answers: Answers) -> None:
    with connect(box.url) as blocker, blocker.transaction():
        Contents(blocker).lock("leases", "EXCLUSIVE")
        # The client cannot claim the first response before the second one is routed.
        response = client.start_request(b"price?", promoted=EU)
        token = box.messages()[0].context[BTS.EpmRRCorrelationToken]
        reply = {BTS.EpmRRCorrelationToken: token, BTS.RouteDirectToTP: True}
        with Client(box.url) as other:
            other.publish(b"first", promoted=reply)
            other.publish(b"second", promoted=reply)
    assert response.result(PATIENCE).data == b"first"
    wait_until(box.suspended)
    assert box.suspended() == [("CORRELATION", False)]


def test_a_request_that_cannot_be_sent_raises_with_the_reason(box: Box, client: Client, start_host: StartHost) -> None:
    add_pricing(box)
    adapter = AnsweringAdapter()
    adapter.behave = fail_always
    start_host(adapter)
    with pytest.raises(NoResponse, match=r"could not be answered\.\nThe receiver is down"):
        client.request(b"{}", promoted=EU, timeout=PATIENCE)
    assert box.suspended() == [("DELIVERY", True)]


def test_a_request_without_a_subscriber_is_refused(box: Box, client: Client) -> None:
    with pytest.raises(PublishFailed):
        client.request(b"", promoted={Region: "MARS"})
    assert count_waiting(box) == 0
    with pytest.raises(NoResponse, match="has no subscriber"):
        client.request(b"", promoted={Region: "MARS", BTS.SuspendMessageOnRoutingFailure: True})
    wait_until(lambda: count_waiting(box) == 0)


def test_a_client_receives_the_responses_of_all_its_requests_in_one_thread(box: Box, client: Client) -> None:
    for _ in range(3):
        with pytest.raises(PublishFailed):
            client.request(b"", promoted={Region: "MARS"})
    assert [thread.name for thread in threading.enumerate()].count("responses") == 1


def test_a_request_to_a_one_way_port_is_refused_at_once(box: Box, client: Client) -> None:
    box.add_port("Out", "Orders.Region == 'EU'")
    with pytest.raises(StateError, match="'Out' is one-way, so it returns no response"):
        client.start_request(b"", to="Out")
    assert (count_waiting(box), box.count("instances")) == (0, 0)


def test_a_request_survives_lost_connections(box: Box, client: Client, answers: Answers) -> None:
    response = client.start_request(b"price?", promoted=EU)
    request = answers.receive()
    own = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
    box.connection.execute(f"{own} AND application_name = 'postroom client'")
    with Client(box.url) as other:
        token = request.message.context[BTS.EpmRRCorrelationToken]
        other.publish(b"5", promoted={BTS.EpmRRCorrelationToken: token, BTS.RouteDirectToTP: True})
    assert response.result(PATIENCE).data == b"5"


def answer_a_killed_program(box: Box, answers: Answers, key: str | None = None) -> None:
    """Kill a program that waits for its response, and answer its request then."""
    code = (
        "import sys; from postroom.client.client import Client; "
        f"Client(sys.argv[1]).request(b'price?', promoted={{'Orders.Region': 'EU'}}, timeout=600, key={key!r})"
    )
    with subprocess.Popen([sys.executable, "-c", code, box.url]) as process:
        request = answers.receive()
        os.kill(process.pid, signal.SIGKILL)
    answers.answer(request, b"5")
    request.complete()


def test_the_response_to_a_killed_program_is_suspended(box: Box, answers: Answers) -> None:
    """RR-06."""
    answer_a_killed_program(box, answers)
    assert read_value(box.connection, "SELECT expire_program_subscriptions(now() + interval '3 minutes')") == 0
    assert read_value(box.connection, "SELECT expire_program_subscriptions(now() + interval '10 minutes')") == 1
    assert box.suspended() == [("CORRELATION", False)]
    assert count_waiting(box) == 0
    assert check(box.connection) == []


def test_a_client_whose_queue_has_expired_requests_again(box: Box, client: Client, answers: Answers) -> None:
    for _ in range(2):
        response = client.start_request(b"price?", promoted=EU)
        request = answers.receive()
        answers.answer(request, b"5")
        request.complete()
        assert response.result(PATIENCE).data == b"5"
        box.connection.execute("SELECT expire_program_subscriptions(now() + interval '10 minutes')")


def test_a_waiting_request_fails_when_its_client_is_closed(box: Box, client: Client, answers: Answers) -> None:
    response = client.start_request(b"price?", promoted=EU)
    answers.receive()
    client.close()
    with pytest.raises(StateError, match="was closed"):
        response.result()
    assert count_waiting(box) == 0
    box.connection.execute("SELECT expire_program_subscriptions()")
    assert box.count("program subscriptions") == 1, "only that of the other program"


def test_a_request_with_a_key_is_published_once_and_its_response_is_stored(
    box: Box, client: Client, answers: Answers
) -> None:
    first = client.start_request(b"price?", promoted=EU, key="one")
    request = answers.receive()
    second = client.start_request(b"price?", promoted=EU, key="one")
    with pytest.raises(KeyReused):
        client.start_request(b"another price?", promoted=EU, key="one")
    with pytest.raises(KeyReused):
        client.publish(b"price?", promoted=EU, key="one")
    answers.answer(request, b"5")
    request.complete()
    assert [future.result(PATIENCE).data for future in (first, second)] == [b"5", b"5"]
    with Client(box.url) as other:
        repeated = other.request(b"price?", promoted=EU, key="one", timeout=PATIENCE)
    assert repeated.data == b"5"
    assert repeated.context[BTS.RouteDirectToTP] is True
    wait_until(lambda: count_waiting(box) == 0)
    run_all_jobs_once(box.connection)
    assert (box.count("instances"), box.count("messages")) == (0, 0)
    assert check(box.connection) == []


def test_a_large_response_is_stored_with_all_its_parts(box: Box, client: Client, answers: Answers) -> None:
    response = client.start_request(b"price?", promoted=EU, key="one")
    request = answers.receive()
    body = bytes(range(256)) * 5_000
    parts = [Part(name="note", body=Bytes(b"a note"), content_type="text/plain", charset="utf-8")]
    answers.answer(request, body, parts=parts)
    for message in (response.result(PATIENCE), client.request(b"price?", promoted=EU, key="one", timeout=PATIENCE)):
        assert message.data == body
        assert [(part.name, part.content_type, part.charset) for part in message.parts[1:]] == [
            ("note", "text/plain", "utf-8")
        ]
        assert message.parts[1].data == b"a note"


def test_a_repeated_request_takes_over_from_a_killed_program(box: Box, client: Client, answers: Answers) -> None:
    answer_a_killed_program(box, answers, key="one")
    assert read_value(box.connection, "SELECT expire_program_subscriptions(now() + interval '9 minutes')") == 0
    assert client.request(b"price?", promoted=EU, key="one", timeout=PATIENCE).data == b"5"
    assert box.suspended() == []
    assert check(box.connection) == []


def read_waiting_instance(box: Box) -> str:
    """Return the instance that waits for the response to a request with a key."""
    [instance] = [one.outcome["instance_id"] for one in box.receipts() if "instance_id" in one.outcome]
    return str(instance)


@pytest.mark.parametrize("end", ["timeout", "cancel", "close"])
def test_the_first_request_gets_its_response_after_a_repeated_one_has_stopped_waiting(
    box: Box, client: Client, answers: Answers, end: str
) -> None:
    first = client.start_request(b"price?", promoted=EU, key="one", timeout=PATIENCE)
    request = answers.receive()
    first_instance = read_waiting_instance(box)
    with Client(box.url) as other:
        repeated = other.start_request(b"price?", promoted=EU, key="one", timeout=0.1 if end == "timeout" else PATIENCE)
        if end == "timeout":
            with pytest.raises(ResponseTimeout):
                repeated.result(PATIENCE)
        elif end == "cancel":
            repeated.cancel()
        if end != "close":
            wait_until(lambda: read_waiting_instance(box) == first_instance, what="the first one waits again")
    assert (read_waiting_instance(box), count_waiting(box)) == (first_instance, 1)
    answers.answer(request, b"5")
    request.complete()
    assert first.result(PATIENCE).data == b"5"
    assert box.suspended() == []
    assert check(box.connection) == []


def test_the_first_request_gets_a_response_that_comes_while_a_repeated_one_stops_waiting(
    box: Box, client: Client, answers: Answers
) -> None:
    first = client.start_request(b"price?", promoted=EU, key="one", timeout=PATIENCE)
    request = answers.receive()
    with Client(box.url) as other:
        repeated = other.start_request(b"price?", promoted=EU, key="one", timeout=PATIENCE)
        repeated.cancel()
        answers.answer(request, b"5")
        request.complete()
        assert first.result(PATIENCE).data == b"5"
    assert box.suspended() == []
    assert check(box.connection) == []


def test_a_request_of_a_closed_client_can_be_repeated(box: Box, client: Client, answers: Answers) -> None:
    with Client(box.url) as first:
        waiting = first.start_request(b"price?", promoted=EU, key="one")
        request = answers.receive()
    with pytest.raises(StateError, match="was closed"):
        waiting.result()
    answers.answer(request, b"5")
    assert client.request(b"price?", promoted=EU, key="one", timeout=PATIENCE).data == b"5"


def test_a_repeated_request_whose_first_one_waited_too_long_fails(client: Client, answers: Answers) -> None:
    with pytest.raises(ResponseTimeout):
        client.request(b"price?", promoted=EU, key="one", timeout=0.1)
    with pytest.raises(NoResponse, match="is not available"):
        client.request(b"price?", promoted=EU, key="one", timeout=PATIENCE)


def test_a_task_starts_a_request_and_waits_later(box: Box, answers: Answers) -> None:
    async def run() -> bytes:
        async with await connect_async(box.url) as client:
            response = await client.start_request(b"price?", promoted=EU, timeout=PATIENCE)
            request = await asyncio.to_thread(answers.receive)
            await asyncio.to_thread(answers.answer, request, b"5")
            return (await response).data

    assert asyncio.run(run()) == b"5"


def test_twenty_tasks_wait_for_responses_with_two_threads(box: Box, start_host: StartHost) -> None:
    add_pricing(box)
    adapter = AnsweringAdapter()
    adapter.behave = blocked = BlockedSend()
    start_host(adapter)

    async def run() -> list[Message]:
        async with await connect_async(box.url) as client:
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2, "calls"))
            requests = [client.request(b"%d" % n, promoted=EU, timeout=PATIENCE) for n in range(20)]
            tasks = [asyncio.ensure_future(request) for request in requests]
            while count_waiting(box) < len(tasks):
                await asyncio.sleep(0.01)
            blocked.released.set()
            return await asyncio.gather(*tasks)

    assert [message.data for message in asyncio.run(run())] == [b"%d" % n for n in range(20)]


def test_a_task_that_is_cancelled_waits_no_longer(box: Box, answers: Answers) -> None:
    async def run() -> None:
        async with await connect_async(box.url) as client:
            task = asyncio.ensure_future(client.request(b"price?", promoted=EU))
            await asyncio.to_thread(answers.receive)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            while count_waiting(box):
                await asyncio.sleep(0.01)

    asyncio.run(run())
