"""Two-way HTTP with real sockets: each client gets its response, or is told that there is none (RR-01 … 12)."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import pytest

from postroom import adapters, pipelines
from postroom.adapters import Attempt
from postroom.errors import DeliveryFailure
from postroom.hosts import HostInstance
from postroom.message import Context, Message
from postroom.messagebox.instances import InstanceQuery, list_instances
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.operations.hosts import set_stopped
from postroom.operations.ports import send_ports
from postroom.properties import Property
from postroom.system_properties import HTTP
from tests.integration.hosts.conftest import SETTINGS, StartHost
from tests.support.box import PROMOTE, Box
from tests.support.inbox_location import add_inbox_location
from tests.support.two_way import AnsweringAdapter, make_location_two_way, make_two_way
from tests.support.waiting import PATIENCE, wait_until

EU = b'{"region": "EU"}'

Serve = Callable[..., HostInstance]


@pytest.fixture
def serve(box: Box, start_host: StartHost) -> Serve:
    """Return a function that starts a host with a two-way HTTP location and the send port Pricing."""

    def start(
        adapter: AnsweringAdapter, *, timeout: float = PATIENCE, port_state: str = "started", **given: Any
    ) -> HostInstance:
        receive = adapters.HttpReceive("/quotes", port=0, response_timeout=timeout, client_connections=1_500)
        make_location_two_way(box, add_inbox_location(box, pipeline=pipelines.Json(promote=PROMOTE), adapter=receive))
        box.add_port("Pricing", "Orders.Region == 'EU'", state=port_state, retry_count=0)
        make_two_way(box, "Pricing")
        instance = start_host(adapter, **given)
        wait_until(lambda: instance.http.ports, what="the listener")
        return instance

    return start


def ask(instance: HostInstance, body: bytes = EU, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = HTTPConnection("127.0.0.1", instance.http.ports[0], timeout=PATIENCE)
    try:
        named = {"Accept": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST", "/quotes", body, named)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def read_error(answer: tuple[int, dict[str, str], bytes]) -> tuple[int, str]:
    status, _, content = answer
    return status, json.loads(content)["error"]


def count_waiting(box: Box) -> int:
    return int(box.count("instance subscriptions"))


def test_fifty_clients_get_their_own_responses(box: Box, serve: Serve) -> None:
    """ACC-40."""
    instance = serve(AnsweringAdapter(lambda body: body.replace(b'"n"', b'"price"')))

    def ask_for(number: int) -> tuple[int, Any]:
        status, headers, content = ask(instance, b'{"region": "EU", "n": %d}' % number)
        assert "Postroom-Interchange-Id" in headers
        return status, json.loads(content)["price"]

    with ThreadPoolExecutor(50) as pool:
        assert list(pool.map(ask_for, range(50))) == [(200, number) for number in range(50)]
    assert count_waiting(box) == 0
    wait_until(lambda: box.count("instances") == 0)
    run_all_jobs_once(box.connection)
    assert box.count("messages") == 0
    assert check(box.connection) == []


def test_a_client_whose_response_is_late_gets_504(box: Box, serve: Serve) -> None:
    """ACC-41."""
    instance = serve(AnsweringAdapter(), timeout=0.1, port_state="stopped")
    assert read_error(ask(instance)) == (504, "The request was received, but its response did not come in time.")
    wait_until(lambda: count_waiting(box) == 0)
    send_ports.start(box.connection, "Pricing")
    wait_until(lambda: box.suspended() == [("CORRELATION", False)])


def test_a_client_with_a_key_can_wait_again_after_a_504(box: Box, serve: Serve) -> None:
    instance = serve(AnsweringAdapter(lambda body: b"5"), timeout=0.1, port_state="stopped")
    status, text = read_error(ask(instance, Idempotency_Key="quote-1"))
    assert status == 504
    assert text.endswith("Repeat the request with its key to wait again.")
    send_ports.start(box.connection, "Pricing")
    wait_until(lambda: len(instance.callers) == 0, what="the late response")
    wait_until(lambda: ask(instance, Idempotency_Key="quote-1")[::2] == (200, b"5"), what="the stored response")


def test_a_client_whose_request_fails_gets_502(box: Box, serve: Serve) -> None:
    def fail(message: Message, attempt: Attempt) -> None:
        raise DeliveryFailure("http://internal responded with 500.")

    adapter = AnsweringAdapter()
    adapter.behave = fail
    status, text = read_error(ask(serve(adapter)))
    assert (status, text) == (502, "The request was received, but it could not be answered.")
    wait_until(lambda: box.suspended() == [("DELIVERY", True)])


def test_a_client_gets_the_status_and_the_headers_of_the_response(box: Box, serve: Serve) -> None:
    """RR-16."""
    adapter = AnsweringAdapter(lambda body: b"")
    adapter.context = Context().write(HTTP.ResponseStatusCode, 204).write(HTTP.UserHttpHeaders, 'ETag: "1"')
    instance = serve(adapter)
    for _ in range(2):
        # The second one is the stored response.
        status, headers, body = ask(instance, Idempotency_Key="one")
        assert (status, body, headers["ETag"]) == (204, b"", '"1"')
        assert "Content-Length" not in headers


@pytest.mark.parametrize(
    ("prop", "value", "reason"),
    [
        (HTTP.ResponseStatusCode, 42, "cannot have the status 42"),
        (HTTP.ResponseStatusCode, 204, "A response with the status 204 has no body, and this one has 16 bytes."),
        (HTTP.UserHttpHeaders, "X: a\nSet-Cookie: b", "The value of the header X contains a line break"),
        (HTTP.UserHttpHeaders, "Transfer-Encoding: chunked", "the header Transfer-Encoding belongs to the connection"),
    ],
)
def test_a_response_that_http_does_not_allow_is_suspended_with_the_reason(
    box: Box, serve: Serve, prop: Property, value: object, reason: str
) -> None:
    adapter = AnsweringAdapter()
    adapter.context = Context().write(prop, value)
    assert read_error(ask(serve(adapter))) == (502, "The request was received, but it could not be answered.")
    wait_until(lambda: box.suspended() == [("DELIVERY_REFUSED", False)], what="the suspended response")
    [response] = list_instances(box.connection, InstanceQuery())
    assert reason in str(response.error_description)


@pytest.mark.parametrize(
    ("body", "status", "reason"), [(b"no JSON", 400, "JSON"), (b'{"region": "US"}', 502, "no subscribers were found")]
)
def test_a_request_that_cannot_be_published_is_answered_with_the_reason(
    box: Box, serve: Serve, body: bytes, status: int, reason: str
) -> None:
    instance = serve(AnsweringAdapter())
    answered, text = read_error(ask(instance, body))
    assert answered == status
    assert reason in text
    assert {resumable for _, resumable in box.suspended()} == {False}
    assert count_waiting(box) == len(instance.callers) == 0


@pytest.mark.parametrize(("body", "status"), [(b"no JSON", 400), (b'{"region": "US"}', 502)])
def test_a_repeated_request_that_could_not_be_published_gets_the_same_reason(
    box: Box, serve: Serve, body: bytes, status: int
) -> None:
    instance = serve(AnsweringAdapter())
    first = read_error(ask(instance, body, Idempotency_Key="one"))
    assert first[0] == status
    assert read_error(ask(instance, body, Idempotency_Key="one")) == first
    assert len([code for code, resumable in box.suspended() if not resumable]) == (1 if status == 400 else 2)


@pytest.mark.parametrize("how", ["close", "shutdown"])
def test_a_client_that_disconnects_waits_no_longer(box: Box, serve: Serve, how: str) -> None:
    """RR-09."""
    instance = serve(AnsweringAdapter(), port_state="stopped")
    with socket.create_connection(("127.0.0.1", instance.http.ports[0])) as client:
        client.sendall(b"POST /quotes HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(EU), EU))
        wait_until(lambda: count_waiting(box) == 1, what="the waiting request")
        if how == "shutdown":
            client.shutdown(socket.SHUT_WR)
        else:
            client.close()
        wait_until(lambda: count_waiting(box) == 0, what="the end of the wait")
    assert len(instance.callers) == 0


def test_a_repeated_key_gets_the_same_response(box: Box, serve: Serve) -> None:
    adapter = AnsweringAdapter(lambda body: b"5")
    instance = serve(adapter)
    first = ask(instance, Idempotency_Key="one")
    second = ask(instance, Idempotency_Key="one")
    assert (first[0], first[2]) == (second[0], second[2]) == (200, b"5")
    assert len(adapter.sent) == 1
    assert ask(instance, b'{"region": "EU", "n": 1}', Idempotency_Key="one")[0] == 422


def test_a_repeated_key_joins_the_waiting_call(box: Box, serve: Serve) -> None:
    adapter = AnsweringAdapter(lambda body: b"5")
    instance = serve(adapter, port_state="stopped")
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(ask, instance, Idempotency_Key="one") for _ in range(2)]
        [caller] = wait_until(lambda: instance.callers.waiting, what="the waiting call")
        wait_until(lambda: caller.connections == 2, what="both connections")
        assert ask(instance, b'{"region": "EU", "n": 1}', Idempotency_Key="one")[0] == 422
        assert caller.connections == 2
        send_ports.start(box.connection, "Pricing")
        assert [(call.result(PATIENCE)[0], call.result()[2]) for call in calls] == [(200, b"5")] * 2
    assert len(adapter.sent) == 1


def test_a_thousand_clients_wait_with_no_more_threads_and_connections_than_a_hundred(box: Box, serve: Serve) -> None:
    instance = serve(AnsweringAdapter(), port_state="stopped")
    connections = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'postroom host%%'"
    used: list[tuple[int, int]] = []
    with ExitStack() as stack:
        clients: list[socket.socket] = []
        for total in (100, 1_000):
            while len(clients) < total:
                clients.append(
                    stack.enter_context(socket.create_connection(("127.0.0.1", instance.http.ports[0]), PATIENCE))
                )
                body = b'{"region": "EU", "n": %d}' % (len(clients) - 1)
                head = b"POST /quotes HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
                clients[-1].sendall(head + body)
            wait_until(lambda: count_waiting(box) == len(clients), what=f"{total} committed requests")
            used.append((threading.active_count(), box.one(connections)))
        # The worker threads, ten at most, are started and open their connections when they are needed.
        assert all(more - few < 10 for few, more in zip(*used, strict=True))
        send_ports.start(box.connection, "Pricing")
        for number, client in enumerate(clients):
            response = HTTPResponse(client)
            response.begin()
            assert (response.status, json.loads(response.read())["n"]) == (200, number)
    assert count_waiting(box) == 0


def test_waiting_clients_get_a_503_when_the_host_stops(box: Box, serve: Serve) -> None:
    instance = serve(AnsweringAdapter(), port_state="stopped")
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(ask, instance)
        wait_until(lambda: count_waiting(box) == 1, what="the waiting request")
        instance.stop()
        assert call.result(PATIENCE)[0] == 503
    assert count_waiting(box) == 0


def test_waiting_clients_get_a_503_when_an_operator_stops_the_host(box: Box, serve: Serve) -> None:
    instance = serve(AnsweringAdapter(), port_state="stopped")
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(ask, instance)
        wait_until(lambda: count_waiting(box) == 1, what="the waiting request")
        set_stopped(box.connection, "Default", stopped=True)
        assert call.result(PATIENCE)[0] == 503
        wait_until(lambda: count_waiting(box) == 0, what="the end of the request")


@pytest.mark.parametrize("how", ["process", "operator"])
def test_waiting_clients_are_answered_while_the_host_stops(box: Box, serve: Serve, how: str) -> None:
    patient = replace(SETTINGS, answer_within=SETTINGS.stop_within)
    instance = serve(AnsweringAdapter(lambda body: b"5"), port_state="stopped", settings=patient)
    http = instance.http
    with ThreadPoolExecutor(2) as pool:
        call = pool.submit(ask, instance)
        wait_until(lambda: count_waiting(box) == 1, what="the waiting request")
        if how == "process":
            pool.submit(instance.stop)
        else:
            set_stopped(box.connection, "Default", stopped=True)
        wait_until(lambda: not http.ports, what="the start of the stop")
        send_ports.start(box.connection, "Pricing")
        assert (call.result(PATIENCE)[0], call.result()[2]) == (200, b"5")
