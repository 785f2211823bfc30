"""Failures of a receive port that routes them: NRF-07, 12, 16, FMR-01 … 04, 08, 09, 10."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from postroom import pipelines
from postroom.agent.routing.table import Routing, RoutingTable
from postroom.agent.streaming.document_batch import DocumentBatch, ReceiveResult
from postroom.agent.streaming.interchange import Interchange
from postroom.agent.streaming.receiver import Receiver
from postroom.errors import MessageBoxUnavailable, StateError
from postroom.filters.columns import Columns
from postroom.filters.index import Piece
from postroom.message import FRAGMENT_SIZE, Bytes, Context
from postroom.messagebox.connection import connect
from postroom.messagebox.instances import get_instance
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.messagebox.queues import QueueTask
from postroom.operations.instances.advice import get_advice
from postroom.operations.ports import send_ports as ports
from postroom.properties import Property
from postroom.system_properties import BTS, ErrorReport
from tests.support.box import PROMOTE, Box, Region, interchange
from tests.support.changes import resume
from tests.support.contents.queues import QueueRow
from tests.support.cut_connections import cut_before_commit

GOOD, BAD, UNROUTABLE = b'{"region": "EU"}', b"{broken", b'{"region": "nowhere"}'
ERRORS = "ErrorReport.ErrorType == 'FailedMessage'"


def read_queue(box: Box, port: str) -> list[QueueRow]:
    return [row for row in box.queued_rows() if row.port == port]


def assert_consistent(box: Box) -> None:
    assert check(box.connection) == []
    run_all_jobs_once(box.connection)
    assert check(box.connection) == []


def json_lines(recoverable: bool) -> pipelines.JsonLines:
    return pipelines.JsonLines(promote=PROMOTE, recoverable=recoverable)


@pytest.mark.parametrize("routed", [False, True], ids=["suspends", "routes"])
@pytest.mark.parametrize("recoverable", [False, True], ids=["standard", "recoverable"])
@pytest.mark.parametrize("failing", [BAD, UNROUTABLE], ids=["pipeline", "routing"])
def test_a_failure_is_suspended_or_routed_as_an_error_message(
    box: Box, failing: bytes, recoverable: bool, routed: bool
) -> None:
    """FMR-08: without routing of failures the interchange or the document is suspended. With it an error message is
    published instead. A routing failure leaves a report in all cases."""
    location = box.add_location(json_lines(recoverable), route_failures=routed)
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.add_port("Errors", ERRORS)
    whole = b"\n".join([GOOD, failing, GOOD])
    [received] = box.receive(location, whole)

    failed = failing if recoverable else whole
    good = 2 if recoverable else 0
    assert received == ReceiveResult(
        interchange_id=received.interchange_id, published=good, suspended=int(not routed), routed=int(routed)
    )
    assert len(read_queue(box, "Europe")) == good
    assert [error.body for error in read_queue(box, "Errors")] == ([failed] if routed else [])
    code = "PIPELINE" if failing is BAD else "ROUTING"
    reports = [("ROUTING", False)] if failing is UNROUTABLE else []
    assert sorted(box.suspended()) == sorted(reports if routed else [*reports, (code, True)])
    if not routed:
        task = box.resumable_row().task
        assert task == (QueueTask.PUBLISH if recoverable and failing is UNROUTABLE else QueueTask.RECEIVE)
    assert_consistent(box)


def test_an_error_message_is_a_clone_that_promotes_only_the_error_report(box: Box) -> None:
    location = box.add_location(route_failures=True)
    box.add_port("Errors", ERRORS)
    [received] = box.receive(location, UNROUTABLE)
    [error] = read_queue(box, "Errors")
    context = error.context
    assert all(key.startswith("ErrorReport#") for key in context.promoted)
    assert context[Region] == "nowhere"
    assert context[BTS.ReceivePortName] == "OrdersIn"
    assert context[BTS.SourceParty] == "test", "the identity is kept (FMR-05)"
    assert context[BTS.InterchangeID] == str(received.interchange_id)
    assert context[ErrorReport.ReceivePortName] == "OrdersIn"
    assert context[ErrorReport.InboundTransportLocation] == "file:///in/*.json"
    assert context[ErrorReport.FailureCode] == "0xc0c01680"
    assert context[ErrorReport.FailureAdapter] == "file"
    assert "no subscribers were found" in str(context[ErrorReport.Description])
    assert context[ErrorReport.FailureMessageID] != str(error.message_id)
    assert box.message(error.message_id).published_by == box.host().role_name


def test_an_error_message_names_its_routing_failure_report_which_has_no_related_instance(box: Box) -> None:
    """NRF-07."""
    location = box.add_location(route_failures=True)
    box.add_port("Errors", ERRORS)
    box.receive(location, UNROUTABLE)
    run_all_jobs_once(box.connection)
    report = box.report()
    [error] = read_queue(box, "Errors")
    assert str(report.instance_id) == error.context[ErrorReport.RoutingFailureReportID]
    assert (report.resumable, report.related_instance_id) == (False, None)
    assert "was routed as an error message" in (get_advice(get_instance(box.connection, report.instance_id)) or "")
    with pytest.raises(StateError) as refused:
        resume(box.connection, report.instance_id)
    assert "was routed as an error message" in refused.value.hint


def test_an_error_message_is_routed_by_the_message_type_of_its_report_only(box: Box) -> None:
    """FMR-04."""
    location = box.add_location(pipelines.Xml(), route_failures=True)
    box.add_port("Orders", "BTS.MessageType == 'urn:o#order' and BTS.InboundTransportType == 'HTTP'")
    box.add_port("ByType", "BTS.MessageType == 'urn:o#order' and ErrorReport.ErrorType == 'FailedMessage'")
    box.add_port("Errors", "ErrorReport.MessageType == 'urn:o#order' and ErrorReport.ReceivePortName == 'OrdersIn'")
    box.receive(location, b'<order xmlns="urn:o"/>')
    assert box.queued() == {"Errors": 1}
    box.receive(location, b"<order")
    assert box.queued() == {"Errors": 1}, "an unreadable document has no message type"


@pytest.mark.parametrize("failing", [BAD, UNROUTABLE])
@pytest.mark.parametrize("recoverable", [False, True])
def test_a_failure_without_a_subscriber_for_its_error_message_is_suspended(
    box: Box, failing: bytes, recoverable: bool
) -> None:
    """NRF-12, FMR-09."""
    location = box.add_location(json_lines(recoverable), route_failures=True)
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.add_port("Elsewhere", "ErrorReport.ReceivePortName == 'Other'")
    [received] = box.receive(location, b"\n".join([GOOD, failing]))
    assert (received.suspended, received.routed) == (1, 0)
    assert (("PIPELINE" if failing is BAD else "ROUTING"), True) in box.suspended()
    if failing is UNROUTABLE:
        related = box.report().related_instance_id
        assert related == box.resumable_row().instance_id
    assert_consistent(box)


def test_an_error_message_for_a_stopped_subscriber_is_suspended(box: Box) -> None:
    location = box.add_location(route_failures=True)
    box.add_port("Errors", ERRORS, state="stopped")
    [received] = box.receive(location, BAD)
    assert (received.suspended, received.routed) == (0, 1)
    assert box.suspended() == [("PORT_STOPPED", True)]
    ports.start(box.connection, "Errors")
    assert [error.body for error in read_queue(box, "Errors")] == [BAD]
    assert_consistent(box)


def test_an_error_message_with_several_subscribers_is_stored_once(box: Box) -> None:
    location = box.add_location(route_failures=True)
    box.add_host("Other")
    box.add_port("Errors", ERRORS)
    box.add_port("Tickets", "ErrorReport.FailureCode == '0xe0000001'", host="Other")
    box.receive(location, b"\n".join([BAD, GOOD, BAD]))
    assert box.queued() == {"Errors": 3, "Tickets": 2}
    assert len({row.message_id for row in box.queued_rows()}) == 3
    assert len({row.instance_id for row in box.queued_rows()}) == 5
    assert box.count("parts") == 3
    assert_consistent(box)


def test_a_repeated_interchange_publishes_no_second_error_message(box: Box) -> None:
    location = box.add_location(route_failures=True)
    box.add_port("Errors", ERRORS)
    again = interchange(b"\n".join([BAD, UNROUTABLE]))
    with connect(box.url, user=box.host().role_name) as connection:
        first = Receiver(connection, RoutingTable()).receive(location, [again])
        second = Receiver(connection, RoutingTable()).receive(location, [again])
    assert (first[0].routed, second[0].routed) == (2, 0)
    assert len(read_queue(box, "Errors")) == 2
    assert_consistent(box)


def test_a_transaction_that_fails_before_its_commit_leaves_no_error_message_and_no_receipt(box: Box) -> None:
    """The connection is cut after everything is written. The second attempt publishes the error message once."""
    location = box.add_location(route_failures=True)
    box.add_port("Errors", ERRORS)
    whole = interchange(b"\n".join([BAD, GOOD, UNROUTABLE]))

    with (
        connect(box.url, user=box.host().role_name) as connection,
        cut_before_commit(box, DocumentBatch),
        pytest.raises(MessageBoxUnavailable),
    ):
        Receiver(connection, RoutingTable()).receive(location, [whole])
    assert (box.count("messages"), box.count("receipts"), box.count("instances")) == (0, 0, 0)
    with connect(box.url, user=box.host().role_name) as connection:
        [received] = Receiver(connection, RoutingTable()).receive(location, [whole])
    assert received.routed == 3
    assert [error.body for error in read_queue(box, "Errors")] == [BAD, GOOD, UNROUTABLE]
    assert_consistent(box)


def test_a_port_that_is_added_during_the_publish_receives_the_error_message(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = box.add_location(route_failures=True)

    match_in_pieces = Routing.match_in_pieces

    def match_before_a_change(routing: Routing, columns: Columns, rows: int) -> Iterator[Piece]:
        yield from match_in_pieces(routing, columns, rows)
        if ErrorReport.ErrorType.key in columns:
            monkeypatch.undo()
            box.add_port("Errors", ERRORS)

    monkeypatch.setattr(Routing, "match_in_pieces", match_before_a_change)
    with connect(box.url, user=box.host().role_name) as connection:
        [received] = Receiver(connection, RoutingTable()).receive(location, [interchange(BAD)])
    assert (received.suspended, received.routed) == (0, 1)
    assert len(read_queue(box, "Errors")) == 1


def test_an_error_message_stores_a_large_body_in_fragments(box: Box) -> None:
    location = box.add_location(pipelines.PassThrough(), route_failures=True)
    box.add_port("Errors", ERRORS)
    body = bytes(range(256)) * (FRAGMENT_SIZE // 64)
    with connect(box.url, user=box.host().role_name) as connection:
        Receiver(connection, RoutingTable()).receive(
            location, [Interchange(interchange_id=uuid.uuid4(), body=Bytes(body))]
        )
    assert len(read_queue(box, "Errors")) == 1
    assert b"".join(box.fragments()) == body
    assert_consistent(box)


def test_thousands_of_failures_in_one_file_are_routed(box: Box) -> None:
    location = box.add_location(pipelines.JsonLines(promote=PROMOTE, bad_documents=2000), route_failures=True)
    box.add_port("Errors", ERRORS)
    box.add_port("Europe", "Orders.Region == 'EU'")
    lines = [(GOOD, BAD, UNROUTABLE)[number % 3] for number in range(3000)]
    [received] = box.receive(location, b"\n".join(lines))
    assert (received.published, received.suspended, received.routed) == (1000, 0, 2000)
    assert box.queued() == {"Errors": 2000, "Europe": 1000}
    assert box.count("messages") == 3001, "with one report"
    assert len({row.instance_id for row in box.instances()}) == 3001
    assert_consistent(box)


@pytest.mark.parametrize("failing", [BAD, GOOD])
def test_the_error_message_of_a_message_with_predicates_is_not_routed_to_unauthorised_hosts(
    box: Box, failing: bytes
) -> None:
    """FMR-05: no authorised host subscribes to it, so the failed message is suspended."""
    certificate = Property("Hosts.Certificate", str)
    location = box.add_location(route_failures=True)
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.add_port("Errors", ERRORS)
    sealed = Interchange(
        interchange_id=uuid.uuid4(), body=Bytes(failing), context=Context().require(certificate, "A909")
    )
    with connect(box.url, user=box.host().role_name) as connection:
        [received] = Receiver(connection, RoutingTable()).receive(location, [sealed])
    assert (received.suspended, received.routed) == (1, 0)
    assert box.queued() == {}
    assert_consistent(box)
