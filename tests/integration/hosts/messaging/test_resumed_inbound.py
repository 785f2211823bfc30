"""A host publishes resumed inbound messages through the Message Agent, and suspends those that fail again."""

from __future__ import annotations

import base64
import gzip
import uuid
from collections.abc import Callable

import pytest

from postroom import pipelines
from postroom.agent.resuming import ResumedInbound
from postroom.errors import PipelineFailure
from postroom.message import FRAGMENT_SIZE, Message
from postroom.messagebox.connection import Connection, transaction
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.messagebox.queues import ClaimedMessage, QueueTask
from postroom.operations.instances.changes import resume_with_body
from postroom.pipelines import components
from tests.integration.hosts.conftest import StartHost
from tests.support.box import PROMOTE, Box, Region
from tests.support.changes import resume
from tests.support.contents import Contents
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

Complete = Callable[[Connection], None]


class ReplacedAgent:
    """Replaces the handling of resumed messages and records the messages."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, behave: Callable[..., None]) -> None:
        self.messages: list[Message] = []

        def handle(
            _: ResumedInbound, connection: Connection, claimed: ClaimedMessage, message: Message, complete: Complete
        ) -> None:
            self.messages.append(message)
            behave(connection, claimed, message, complete)

        monkeypatch.setattr(ResumedInbound, "handle", handle)


def complete_now(connection: Connection, claimed: ClaimedMessage, message: Message, complete: Complete) -> None:
    transaction(connection, complete)


def suspend_unreadable(box: Box, body: bytes = b"not json") -> None:
    """Receive a line that the pipeline cannot read, so that it is suspended."""
    box.receive(box.add_location(), body)


def resume_all(box: Box) -> None:
    for row in box.suspended_rows():
        if row.resumable:
            resume(box.connection, row.instance_id)


def test_a_resumed_message_is_published_and_completed_by_the_agent(
    box: Box, start_host: StartHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspend_unreadable(box)
    agent = ReplacedAgent(monkeypatch, complete_now)
    instance = start_host(RecordingAdapter())
    resume_all(box)
    wait_until(lambda: instance.counts["finished"] == 1)
    assert [message.body.data for message in agent.messages if message.body] == [b"not json"]
    assert box.count("instances") == 0
    run_all_jobs_once(box.connection)
    assert box.count("messages") == 0
    assert check(box.connection) == []


def test_a_resumed_message_that_fails_is_suspended_with_the_new_reason(
    box: Box, start_host: StartHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspend_unreadable(box)

    def fail(connection: Connection, claimed: ClaimedMessage, message: Message, complete: Complete) -> None:
        raise PipelineFailure("It is still not JSON.", hint="Fix it.")

    ReplacedAgent(monkeypatch, fail)
    instance = start_host(RecordingAdapter())
    resume_all(box)
    wait_until(lambda: instance.counts["suspended"] == 1)
    [row] = box.suspended_rows()
    assert (row.error_code, row.error_description) == ("PIPELINE", "It is still not JSON.\nFix it.")
    assert (row.adapter, row.uri, row.task) == ("file", "file:///in/*.json", QueueTask.RECEIVE)


def test_a_defect_in_the_agent_suspends_the_message(
    box: Box, start_host: StartHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspend_unreadable(box)

    def raise_defect(connection: Connection, claimed: ClaimedMessage, message: Message, complete: Complete) -> None:
        raise ZeroDivisionError

    ReplacedAgent(monkeypatch, raise_defect)
    instance = start_host(RecordingAdapter())
    resume_all(box)
    wait_until(lambda: instance.counts["suspended"] == 1)
    assert box.suspended() == [("UNEXPECTED", True)]


def test_a_claim_that_was_taken_over_publishes_nothing(
    box: Box, start_host: StartHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspend_unreadable(box)

    def complete_too_late(
        connection: Connection, claimed: ClaimedMessage, message: Message, complete: Complete
    ) -> None:
        box.claim_all(claimed_by=4711)

        def work(connection: Connection) -> None:
            Contents(connection).add_receipt(uuid.uuid4())
            complete(connection)

        transaction(connection, work)

    receipts = box.count("receipts")
    ReplacedAgent(monkeypatch, complete_too_late)
    instance = start_host(RecordingAdapter())
    resume_all(box)
    wait_until(lambda: instance.counts["discarded"] == 1)
    assert box.count("receipts") == receipts
    assert box.count("queued") == 1


@pytest.mark.parametrize("size", [20, 3 * FRAGMENT_SIZE])
def test_an_embedded_host_instance_publishes_a_resumed_message(box: Box, start_host: StartHost, size: int) -> None:
    """The message had no subscriber. After a port is added, the resumed message is delivered, also a large one."""
    location = box.add_location()
    filler = "x" * size
    box.receive(location, f'{{"region": "EU", "filler": "{filler}"}}'.encode())
    assert [code for code, _ in box.suspended()][:1] == ["ROUTING"]
    box.add_port("Europe", "Orders.Region == 'EU'")
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    resume_all(box)
    wait_until(lambda: instance.counts["completed"] == 1)
    assert recorder.sent[0].message.context[Region] == "EU"
    assert filler.encode() in recorder.bodies[0]
    run_all_jobs_once(box.connection)
    assert box.count("messages") == 0
    assert check(box.connection) == []


def test_a_fixed_document_is_not_decoded_again(box: Box, start_host: StartHost) -> None:
    pipeline = pipelines.Receive(decode=[components.Gzip()], disassemble=[pipelines.JsonLines(promote=PROMOTE)])
    box.add_port("Europe", "Orders.Region == 'EU'")
    location = box.add_location(pipeline)
    box.receive(location, gzip.compress(b'{"region": "EU"}\nnot json'), b"not gzip")
    rows = sorted(box.suspended_rows(), key=lambda row: row.error_description, reverse=True)
    document, interchange = (row.instance_id for row in rows)
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    resume_with_body(box.connection, document, b'{"region": "EU", "fixed": 1}')
    resume_with_body(box.connection, interchange, gzip.compress(b'{"region": "EU", "fixed": 2}'))
    wait_until(lambda: instance.counts["completed"] == 3)
    assert sorted(recorder.bodies)[:2] == [b'{"region": "EU", "fixed": 1}', b'{"region": "EU", "fixed": 2}']
    assert box.suspended() == []


@pytest.mark.parametrize(
    ("disassembler", "envelope", "document"),
    [
        (pipelines.Json(promote=PROMOTE, split="orders"), b'{"orders": [%s, %s]}', b'{"region": "%s"}'),
        (pipelines.Xml(promote={Region: "/o/r"}, split="/e/o"), b"<e>%s%s</e>", b"<o><r>%s</r></o>"),
    ],
    ids=["json", "xml"],
)
def test_a_document_of_an_envelope_is_resumed_without_the_envelope(
    box: Box, start_host: StartHost, disassembler: pipelines.Json | pipelines.Xml, envelope: bytes, document: bytes
) -> None:
    pipeline = pipelines.Receive(decode=[components.Base64()], disassemble=[disassembler], recoverable=True)
    box.add_port("Europe", "Orders.Region == 'EU'")
    too_long = document % (b"x" * 257)
    box.receive(box.add_location(pipeline), base64.b64encode(envelope % (document % b"EU", too_long)))
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    suspended = box.suspended_rows()[0].instance_id
    assert too_long in box.bodies()
    resume(box.connection, suspended)
    wait_until(lambda: instance.counts["suspended"] == 1)
    assert "characters" in box.read_error()
    resume_with_body(box.connection, suspended, document % b"EU")
    wait_until(lambda: recorder.bodies == [document % b"EU"] * 2)


def test_a_resumed_message_without_a_subscriber_gets_one_routing_failure_report(
    box: Box, start_host: StartHost
) -> None:
    """NRF-04: also after a failure of another kind. An instance has at most one report."""
    suspend_unreadable(box)
    suspended_id = box.suspended_rows()[0].instance_id
    instance = start_host(RecordingAdapter())
    resume_with_body(box.connection, suspended_id, b'{"region": "nowhere"}')
    wait_until(lambda: instance.counts["suspended"] == 1)
    resume(box.connection, suspended_id)
    wait_until(lambda: instance.counts["suspended"] == 2)
    assert sorted(box.suspended()) == [("ROUTING", False), ("ROUTING", True)]
    assert box.report().related_instance_id == suspended_id
    assert check(box.connection) == []
