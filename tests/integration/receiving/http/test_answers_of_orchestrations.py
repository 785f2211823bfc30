"""HTTP callers get the status and the headers that an orchestration chooses, and a fault if it does not answer."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path

import pytest

from postroom import Message, Property, adapters, pipelines
from postroom.hosts import HostInstance
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.orchestration_instances import HostOrchestrations
from tests.integration.hosts.conftest import StartHost
from tests.support.box import PROMOTE, Box
from tests.support.changes import resume, suspend
from tests.support.inbox_location import add_inbox_location
from tests.support.orchestrations import apply_orchestrations, has_ended, publish
from tests.support.recording_adapter import RecordingAdapter
from tests.support.two_way import make_location_two_way
from tests.support.waiting import PATIENCE, wait_until

EU = b'{"region": "EU"}'
HEAD = """
from postroom import set_http_response

Region = Property("Orders.Region", str)
app.property(Region)
"""
#: Answers when a message has come from outside.
LATE = """
@app.orchestration(activate=Region == "EU", correlations=[Replies], host="Default")
async def answer(question: Message) -> None:
    replies = Replies.of({Key: "k"})
    await orchestrations.send(Message.of(b"asked"), to="Out")
    reply = await replies.receive()
    await orchestrations.send(Message.of(reply.data), to=orchestrations.reply_port(question))
"""

Serve = Callable[[str], HostInstance]
Answer = tuple[int, dict[str, str], bytes]


@pytest.fixture
def serve(box: Box, tmp_path: Path, start_host: StartHost) -> Serve:
    """Return a function that starts a host with a two-way HTTP location and these orchestrations."""

    def start(code: str) -> HostInstance:
        receive = adapters.HttpReceive("/quotes", port=0, response_timeout=PATIENCE)
        make_location_two_way(box, add_inbox_location(box, pipeline=pipelines.Json(promote=PROMOTE), adapter=receive))
        apply_orchestrations(box, tmp_path, HEAD + code)
        instance = start_host(RecordingAdapter())
        wait_until(lambda: instance.http.ports, what="the listener")
        return instance

    return start


def ask(instance: HostInstance, **headers: str) -> Answer:
    connection = HTTPConnection("127.0.0.1", instance.http.ports[0], timeout=PATIENCE)
    try:
        connection.request("POST", "/quotes", EU, {name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def test_an_orchestration_chooses_the_status_and_the_headers(box: Box, serve: Serve) -> None:
    """RR-16."""
    instance = serve(
        """
@app.orchestration(activate=Region == "EU", host="Default")
async def answer(question: Message) -> None:
    reply = Message.of(b'{"reason": "no price"}', content_type="application/json")
    reply = set_http_response(reply, status=404, headers={"Retry-After": "5", "ETag": '"1"'})
    await orchestrations.send(reply, to=orchestrations.reply_port(question))
"""
    )
    for _ in range(2):
        # The second one is the stored response.
        status, headers, body = ask(instance, Idempotency_Key="one")
        assert (status, body) == (404, b'{"reason": "no price"}')
        assert (headers["Retry-After"], headers["ETag"]) == ("5", '"1"')
        assert headers["Content-Type"] == "application/json"
        assert "Postroom-Interchange-Id" in headers
    assert check(box.connection) == []


def test_a_caller_gets_the_fault_of_an_orchestration_at_once_and_in_its_format(box: Box, serve: Serve) -> None:
    """ACK-01, RR-11."""
    instance = serve(
        """
@app.orchestration(activate=Region == "EU", host="Default")
async def answer(question: Message) -> None:
    raise ValueError(orchestrations.reply_port(question).full_name)
"""
    )
    text = "The request was received, but it could not be answered."
    assert ask(instance, Content_Type="application/json")[::2] == (502, json.dumps({"error": text}).encode() + b"\n")
    status, headers, body = ask(instance, Accept="application/xml")
    assert (status, headers["Content-Type"]) == (502, "application/xml")
    assert body == f'<?xml version="1.0" encoding="utf-8"?>\n<fault><error>{text}</error></fault>\n'.encode()
    status, headers, body = ask(instance)
    assert (status, headers["Content-Type"], body) == (502, "text/plain; charset=utf-8", f"{text}\n".encode())
    assert box.count("instance subscriptions") == 0
    assert check(box.connection) == []


@pytest.mark.parametrize("has_key", [False, True])
def test_a_late_answer_is_for_the_client_that_repeats_its_request(box: Box, serve: Serve, has_key: bool) -> None:
    """RR-05: without an idempotency key it is suspended."""
    instance = serve(LATE)
    headers = {"Idempotency_Key": "one"} if has_key else {}
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(ask, instance, **headers)
        wait_until(lambda: box.count("waiting orchestrations") == 1, what="the waiting instance")
        [waiting] = box.orchestration_instances()
        suspend(box.connection, waiting.instance_id)
        assert first.result(PATIENCE)[0] == 502
    resume(box.connection, waiting.instance_id)
    publish(box, "reply", "42")
    wait_until(lambda: has_ended(box), what="the end of the instance")
    if has_key:
        assert ask(instance, **headers)[::2] == (200, b"42")
        assert box.suspended() == []
    else:
        assert box.suspended() == [("CORRELATION", False)]
    assert check(box.connection) == []


def test_a_message_that_joins_a_suspended_instance_gives_no_fault_to_other_callers(box: Box, serve: Serve) -> None:
    """ACK-01: a location that waits for a late answer would get a fault for each message that comes in the meantime."""
    instance = serve(
        """
@app.orchestration(activate=Region == "EU", convoy=[Region], host="Default")
async def answer(question: Message) -> None:
    raise ValueError(orchestrations.reply_port(question).full_name)
"""
    )
    assert ask(instance, Idempotency_Key="one")[0] == 502
    instance.stop()  # what it would take stays in the queue
    procedures, services = HostOrchestrations("Default"), box.orchestration_ids()
    for _ in range(2):
        box.agent(warm=False).publish([Message.of(EU, promoted={Property("Orders.Region", str): "EU"})])
        assert not procedures.claim(box.connection, claim_id=uuid.uuid4(), host_instance=1, limit=9, services=services)
    assert box.count("queued") == 0
    assert check(box.connection) == []
