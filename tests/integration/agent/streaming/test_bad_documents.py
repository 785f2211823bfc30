"""The rest of an interchange with too many bad documents is suspended as one (RCV-13, RCV-14, ADR 0021)."""

from __future__ import annotations

import uuid
from decimal import Decimal

import pytest

from postroom import pipelines
from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming import interchange as chunks
from postroom.agent.streaming import receiver as receiving
from postroom.agent.streaming.receiver import Receiver
from postroom.errors import PipelineFailure
from postroom.messagebox.connection import connect
from postroom.messagebox.instances import InstanceQuery, InstanceState, count_instances, list_instances
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.messagebox.storage.receipts import read_progress
from postroom.pipelines import ReceivePipeline
from postroom.ports.receive_locations import ReceiveLocation
from postroom.system_properties import BTS
from tests.support.box import PROMOTE, Box, Region, Total, interchange
from tests.support.changes import resume_all, terminate_all
from tests.support.contents.queues import QueueRow
from tests.support.dequeue import dequeue_all, resume_now

GOOD, BAD = b'{"region": "EU", "total": 1}\n', b"x\n"
RECORD = pipelines.Delimited(["region", pipelines.Field("total", Decimal)], delimiter=";")


def lines(bad_documents: int | None = 3) -> pipelines.JsonLines:
    return pipelines.JsonLines(promote=PROMOTE, bad_documents=bad_documents)


def suspended_bodies(box: Box) -> list[bytes]:
    return [row.body for row in box.suspended_rows() if row.body is not None]


@pytest.mark.parametrize(
    ("pipeline", "wrong"),
    [
        (pipelines.JsonLines(promote=PROMOTE), BAD * 1_001),
        (pipelines.Csv(promote={Region: "region", Total: "total"}), b"region,total\n" + b"EU,much\n" * 1_001),
        (
            pipelines.FlatFile(message_type="Order", record=RECORD, promote={Total: "total"}),
            b"EU;much\n" * 1_001,
        ),
        (
            pipelines.Json(promote=PROMOTE, split="$", recoverable=True),
            b"[" + b",".join([b'{"total": "much"}'] * 1_001) + b"]",
        ),
        (pipelines.Receive(disassemble=[pipelines.JsonLines(promote=PROMOTE)]), b'{"total": "much"}\n' * 1_001),
    ],
    ids=["json-lines", "csv", "flat-file", "json", "receive"],
)
def test_a_file_of_another_format_is_suspended_as_one_instance(
    box: Box, pipeline: ReceivePipeline, wrong: bytes
) -> None:
    box.add_port("All", "BTS.ReceivePortName == 'OrdersIn'")
    [received] = box.receive(box.add_location(pipeline), wrong)
    assert (received.published, received.suspended) == (0, 1)
    assert box.suspended() == [("PIPELINE", True)]
    assert suspended_bodies(box) == [wrong], "it is suspended whole"
    why = box.read_error()
    assert why.startswith("1,001 of the first 1,001 documents are bad, and bad_documents allows 1,000.")
    assert box.count("messages") == 1


def test_bad_documents_up_to_the_limit_are_suspended_one_by_one(box: Box) -> None:
    box.add_port("All", "BTS.ReceivePortName == 'OrdersIn'")
    [received] = box.receive(box.add_location(lines()), GOOD + BAD * 3 + GOOD)
    assert (received.published, received.suspended) == (2, 3)


def test_other_interchanges_of_the_transaction_are_published(box: Box) -> None:
    box.add_port("All", "BTS.ReceivePortName == 'OrdersIn'")
    results = box.receive(box.add_location(lines()), GOOD, BAD * 9, GOOD * 2)
    assert [(one.published, one.suspended) for one in results] == [(1, 0), (0, 1), (2, 0)]


def test_a_port_that_routes_failures_publishes_one_error_message(box: Box) -> None:
    box.add_port("Errors", "ErrorReport.ErrorType == 'FailedMessage'")
    location = box.add_location(lines(), route_failures=True)
    [received] = box.receive(location, BAD * 9)
    assert (received.published, received.suspended, received.routed) == (0, 0, 1)
    assert box.queued() == {"Errors": 1}
    assert box.parts()[0].body == BAD * 9


def test_the_count_of_bad_documents_continues_in_the_next_attempt(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """The count is stored in the receipts, so it survives a process that dies between two chunks."""
    for module in (chunks, receiving):
        monkeypatch.setattr(module, "CHUNK_ROWS", 4)
    box.add_port("All", "BTS.ReceivePortName == 'OrdersIn'")
    location = box.add_location(lines())
    body = (GOOD * 3 + BAD) * 3 + GOOD * 3 + BAD + GOOD * 40
    one = interchange(body)
    attempts = 0
    with connect(box.url, user=box.host().role_name) as connection:
        finished = False
        while not finished:
            # Every attempt ends after its first transaction, and another process continues.
            [received] = Receiver(connection, RoutingTable()).receive(location, [one], pace=lambda: False)
            attempts += 1
            finished = not received.unfinished
        [again] = Receiver(connection, RoutingTable()).receive(location, [one])
        progress = read_progress(connection, [one.interchange_id])[one.interchange_id]
    assert attempts == 3, "the rest is suspended in the transaction of the last published chunk"
    assert (again.published, again.suspended) == (0, 0)
    assert (progress.bad, progress.last_document, progress.done) == (3, 12, True)
    assert box.queued() == {"All": 9}
    assert sorted(suspended_bodies(box)) == sorted([b"x", b"x", b"x", body])
    why = find_whole_interchange(box).error_description
    assert why.startswith("4 of the first 16 documents are bad, and bad_documents allows 3.")
    assert "What follows document 12 was not published." in why


# -- resuming ----------------------------------------------------------------------------------------------------------


def find_whole_interchange(box: Box) -> QueueRow:
    """Return the suspended message that is a whole interchange and not a document."""
    return next(row for row in box.suspended_rows() if BTS.InterchangeSequenceNumber not in row.context)


def set_limit(box: Box, bad_documents: int | None) -> None:
    """Change the limit of the location."""
    box.merge_locations(pipeline={"bad_documents": bad_documents})


def resume_interchange(box: Box, location: ReceiveLocation, body: bytes) -> None:
    """Resume the interchange in a transaction of a host."""
    with connect(box.url, user=box.host().role_name) as connection:
        Receiver(connection, RoutingTable()).receive_again(location, interchange(body), lambda _: None)


def test_an_interchange_is_resumed_whole_after_the_limit_is_raised(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU'")
    location = box.add_location(lines())
    body = GOOD + BAD * 4 + GOOD + b'{"region": "US"}'
    with pytest.raises(PipelineFailure, match="4 of the first 5 documents are bad, and bad_documents allows 3"):
        resume_interchange(box, location, body)
    assert (box.queued(), box.suspended()) == ({}, [])
    box.receive(location, body)
    # A document without a subscriber counts too.
    set_limit(box, 5)
    published = resume_now(box, find_whole_interchange(box).instance_id)
    assert [message.context[BTS.InterchangeSequenceNumber] for message in published] == [1, 6]
    assert suspended_bodies(box) == [b"x"] * 4 + [b'{"region": "US"}']
    assert sorted(box.suspended()) == [("PIPELINE", True)] * 4 + [("ROUTING", False), ("ROUTING", True)]
    run_all_jobs_once(box.connection)
    assert check(box.connection) == []


@pytest.mark.parametrize("raised", [True, False], ids=["a higher limit", "a corrected file"])
def test_resuming_a_partly_published_interchange_publishes_the_rest(
    box: Box, monkeypatch: pytest.MonkeyPatch, raised: bool
) -> None:
    for module in (chunks, receiving):
        monkeypatch.setattr(module, "CHUNK_ROWS", 4)
    box.add_port("Europe", "Region == 'EU'")
    body = GOOD * 3 + BAD + GOOD + BAD * 3
    [received] = box.receive(box.add_location(lines()), body)
    assert (received.published, received.suspended) == (3, 2)
    first = dequeue_all(box)
    assert [message.context[BTS.InterchangeSequenceNumber] for message in first] == [1, 2, 3]
    if raised:
        set_limit(box, None)
        rest = resume_now(box, find_whole_interchange(box).instance_id)
        assert suspended_bodies(box) == [b"x"] * 4
    else:
        rest = resume_now(box, find_whole_interchange(box).instance_id, body=GOOD * 3 + BAD + GOOD * 3)
        assert suspended_bodies(box) == [b"x"]
    assert [message.context[BTS.InterchangeSequenceNumber] for message in rest] == ([5] if raised else [5, 6, 7])
    # They have the id of the interchange, and no properties of the suspended message.
    assert {one.context[BTS.InterchangeID] for one in rest} == {str(received.interchange_id)}
    assert not [key for one in rest for key in one.context.written if "Suspended" in key]
    run_all_jobs_once(box.connection)
    assert check(box.connection) == []


def test_resuming_routes_bad_documents_as_error_messages(box: Box) -> None:
    box.add_port("Errors", "ErrorReport.ErrorType == 'FailedMessage'")
    box.add_port("Europe", "Region == 'EU'")
    resume_interchange(box, box.add_location(lines(), route_failures=True), GOOD + BAD)
    assert box.queued() == {"Europe": 1, "Errors": 1}
    assert box.suspended() == []


def test_an_interchange_that_does_not_fit_into_memory_is_not_resumed(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """LRG-01: the host would buffer its documents in memory."""
    box.add_port("Europe", "Region == 'EU'")
    location = box.add_location(lines())
    monkeypatch.setattr(chunks, "MAX_STANDARD_BYTES", 20_000)
    monkeypatch.setattr(chunks, "CHUNK_ROWS", 10)
    resume_interchange(box, location, GOOD * 100)
    assert box.queued() == {"Europe": 100}
    with pytest.raises(PipelineFailure, match="more than 20,000 bytes together") as raised:
        resume_interchange(box, location, GOOD * 1_000)
    assert "send the file to its location again" in raised.value.hint
    assert box.queued() == {"Europe": 100}


def test_all_instances_of_an_interchange_can_be_listed_terminated_and_resumed_together(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU'")
    location = box.add_location(lines())
    wrong, other, good = box.receive(location, BAD * 3 + GOOD, BAD, GOOD)
    of_wrong = InstanceQuery(interchange_id=wrong.interchange_id, states=[InstanceState.SUSPENDED])
    assert len(list_instances(box.connection, of_wrong)) == 3
    assert [one.count for one in count_instances(box.connection, of_wrong, "error")] == [3]
    assert len(list_instances(box.connection, InstanceQuery(interchange_id=wrong.interchange_id))) == 4
    assert len(list_instances(box.connection, InstanceQuery(interchange_id=good.interchange_id))) == 1
    assert terminate_all(box.connection, of_wrong) == 3
    assert resume_all(box.connection, InstanceQuery(interchange_id=other.interchange_id)) == 1
    assert list_instances(box.connection, InstanceQuery(interchange_id=uuid.uuid4())) == []
    assert (box.suspended(), box.queued()) == ([], {"Europe": 2})
