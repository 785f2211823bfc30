"""Failures of a receive port that routes them: NRF-07, 12, 16, FMR-01 … 04, 08, 09, 10."""

from __future__ import annotations

import uuid
from typing import NamedTuple

import pytest

from postroom import pipelines
from postroom.agent.receiving.document_batch import DocumentBatch
from postroom.agent.receiving.interchange import Interchange
from postroom.agent.receiving.receiver import Received, Receiver
from postroom.agent.routing.table import RoutingTable
from postroom.errors import MessageBoxUnavailable, StateError
from postroom.message import FRAGMENT_SIZE, Bytes, Context
from postroom.messagebox.check import check
from postroom.messagebox.connection import connect
from postroom.messagebox.jobs import run_all_jobs_once
from postroom.operations.instances.advice import advice
from postroom.operations.instances.changes import resume
from postroom.operations.instances.listing import get_instance
from postroom.operations.ports import send_ports as ports
from postroom.properties import Property
from postroom.system_properties import BTS, ErrorReport
from tests.support.box import PROMOTE, Box, Region, interchange
from tests.support.cut_connections import dying_before_commit

GOOD, BAD, NOBODY = b'{"region": "EU"}', b"{broken", b'{"region": "nowhere"}'
ERRORS = "ErrorReport.ErrorType == 'FailedMessage'"


class Stored(NamedTuple):
    """A message in somebody's work queue."""

    message_id: uuid.UUID
    context: Context
    body: bytes


def queued(box: Box, port: str) -> list[Stored]:
    rows = box.connection.execute(
        "SELECT s.message_id, s.context, p.body FROM work_queue q JOIN send_ports o ON o.id = q.service_id"
        " JOIN spool s ON s.message_id = q.message_id JOIN parts p ON p.part_id = s.body_part_id"
        " WHERE o.name = %s ORDER BY q.seq",
        (port,),
    )
    return [Stored(message_id, Context.from_json(context), body) for message_id, context, body in rows]


def consistent(box: Box) -> None:
    assert check(box.connection) == []
    run_all_jobs_once(box.connection)
    assert check(box.connection) == []


def json(recoverable: bool) -> pipelines.JsonLines:
    return pipelines.JsonLines(promote=PROMOTE, recoverable=recoverable)


@pytest.mark.parametrize("routed", [False, True], ids=["suspends", "routes"])
@pytest.mark.parametrize("recoverable", [False, True], ids=["standard", "recoverable"])
@pytest.mark.parametrize("failing", [BAD, NOBODY], ids=["pipeline", "routing"])
def test_the_failure_matrix(box: Box, failing: bytes, recoverable: bool, routed: bool) -> None:
    """FMR-08: off, the interchange or the document alone is suspended; on, an error message takes its place. A routing
    failure leaves a report in all four cases."""
    location = box.add_location(json(recoverable), route_failures=routed)
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.add_port("Errors", ERRORS)
    whole = b"\n".join([GOOD, failing, GOOD])
    [received] = box.receive(location, whole)

    failed = failing if recoverable else whole
    good = 2 if recoverable else 0
    assert received == Received(
        interchange_id=received.interchange_id, published=good, suspended=int(not routed), routed=int(routed)
    )
    assert len(queued(box, "Europe")) == good
    assert [one.body for one in queued(box, "Errors")] == ([failed] if routed else [])
    code = "PIPELINE" if failing is BAD else "ROUTING"
    reports = [("ROUTING", False)] if failing is NOBODY else []
    assert sorted(box.suspended()) == sorted(reports if routed else [*reports, (code, True)])
    if not routed:
        task = box.one("SELECT task FROM suspended_queue WHERE resumable")
        assert task == (3 if recoverable and failing is NOBODY else 2)
    consistent(box)


def test_the_error_message_is_a_clone_with_nothing_promoted_but_the_report(box: Box) -> None:
    location = box.add_location(route_failures=True)
    box.add_port("Errors", ERRORS)
    [received] = box.receive(location, NOBODY)
    [error] = queued(box, "Errors")
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
    assert box.one("SELECT published_by FROM spool WHERE message_id = %s", error.message_id) == box.host().role_name


def test_the_report_is_named_by_the_error_message_and_goes_with_no_instance(box: Box) -> None:
    """NRF-07."""
    location = box.add_location(route_failures=True)
    box.add_port("Errors", ERRORS)
    box.receive(location, NOBODY)
    run_all_jobs_once(box.connection)
    row = box.connection.execute(
        "SELECT instance_id, resumable, service_class, related_instance_id FROM suspended_queue"
    ).fetchone()
    assert row is not None
    [error] = queued(box, "Errors")
    assert (str(row[0]), *row[1:]) == (error.context[ErrorReport.RoutingFailureReportID], False, 64, None)
    assert "went on as an error message" in (advice(get_instance(box.connection, row[0])) or "")
    with pytest.raises(StateError) as refused:
        resume(box.connection, row[0])
    assert "went on as an error message" in refused.value.hint


def test_a_message_type_is_told_and_does_not_bring_the_error_to_its_subscribers(box: Box) -> None:
    """FMR-04."""
    location = box.add_location(pipelines.Xml(), route_failures=True)
    box.add_port("Orders", "BTS.MessageType == 'urn:o#order' and BTS.InboundTransportType == 'HTTP'")
    box.add_port("ByType", "BTS.MessageType == 'urn:o#order' and ErrorReport.ErrorType == 'FailedMessage'")
    box.add_port("Errors", "ErrorReport.MessageType == 'urn:o#order' and ErrorReport.ReceivePortName == 'OrdersIn'")
    box.receive(location, b'<order xmlns="urn:o"/>')
    assert box.queued() == {"Errors": 1}
    box.receive(location, b"<order")
    assert box.queued() == {"Errors": 1}, "what could not be read has no type"


@pytest.mark.parametrize("failing", [BAD, NOBODY])
@pytest.mark.parametrize("recoverable", [False, True])
def test_what_nobody_wants_to_hear_of_is_suspended_after_all(box: Box, failing: bytes, recoverable: bool) -> None:
    """NRF-12, FMR-09."""
    location = box.add_location(json(recoverable), route_failures=True)
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.add_port("Elsewhere", "ErrorReport.ReceivePortName == 'Other'")
    [received] = box.receive(location, b"\n".join([GOOD, failing]))
    assert (received.suspended, received.routed) == (1, 0)
    assert (("PIPELINE" if failing is BAD else "ROUTING"), True) in box.suspended()
    if failing is NOBODY:
        related = box.one("SELECT related_instance_id FROM suspended_queue WHERE cause = 3")
        assert related == box.one("SELECT instance_id FROM suspended_queue WHERE resumable")
    consistent(box)


def test_a_stopped_subscriber_keeps_the_error_message(box: Box) -> None:
    location = box.add_location(route_failures=True)
    box.add_port("Errors", ERRORS, state="stopped")
    [received] = box.receive(location, BAD)
    assert (received.suspended, received.routed) == (0, 1)
    assert box.suspended() == [("PORT_STOPPED", True)]
    ports.start(box.connection, "Errors")
    assert [one.body for one in queued(box, "Errors")] == [BAD]
    consistent(box)


def test_every_subscriber_of_an_error_gets_it_and_it_is_stored_once(box: Box) -> None:
    location = box.add_location(route_failures=True)
    box.add_host("Other")
    box.add_port("Errors", ERRORS)
    box.add_port("Tickets", "ErrorReport.FailureCode == '0xe0000001'", host="Other")
    box.receive(location, b"\n".join([BAD, GOOD, BAD]))
    assert box.queued() == {"Errors": 3, "Tickets": 2}
    assert box.one("SELECT count(DISTINCT message_id) FROM work_queue") == 3
    assert box.one("SELECT count(DISTINCT instance_id) FROM work_queue") == 5
    assert box.count("parts") == 3
    consistent(box)


def test_the_same_interchange_again_publishes_no_second_error(box: Box) -> None:
    location = box.add_location(route_failures=True)
    box.add_port("Errors", ERRORS)
    again = interchange(b"\n".join([BAD, NOBODY]))
    with connect(box.url, user=box.host().role_name) as connection:
        first = Receiver(connection, RoutingTable()).receive(location, [again])
        second = Receiver(connection, RoutingTable()).receive(location, [again])
    assert (first[0].routed, second[0].routed) == (2, 0)
    assert len(queued(box, "Errors")) == 2
    consistent(box)


def test_a_transaction_that_dies_before_its_commit_leaves_neither_error_nor_receipt(box: Box) -> None:
    """The connection goes after everything is written. The second run publishes what the first would have, once."""
    location = box.add_location(route_failures=True)
    box.add_port("Errors", ERRORS)
    whole = interchange(b"\n".join([BAD, GOOD, NOBODY]))

    with (
        connect(box.url, user=box.host().role_name) as connection,
        dying_before_commit(box, DocumentBatch),
        pytest.raises(MessageBoxUnavailable),
    ):
        Receiver(connection, RoutingTable()).receive(location, [whole])
    assert (box.count("spool"), box.count("receipts"), box.count("instances")) == (0, 0, 0)
    with connect(box.url, user=box.host().role_name) as connection:
        [received] = Receiver(connection, RoutingTable()).receive(location, [whole])
    assert received.routed == 3
    assert [one.body for one in queued(box, "Errors")] == [BAD, GOOD, NOBODY]
    consistent(box)


def test_subscribers_of_errors_that_come_during_the_publish_are_not_missed(box: Box) -> None:
    location = box.add_location(route_failures=True)

    class Changing(RoutingTable):
        changed = False

        def match(self, columns, rows):  # type: ignore[no-untyped-def]
            found = super().match(columns, rows)
            if not self.changed and ErrorReport.ErrorType.key in columns:
                self.changed = True
                box.add_port("Errors", ERRORS)
            return found

    with connect(box.url, user=box.host().role_name) as connection:
        [received] = Receiver(connection, Changing()).receive(location, [interchange(BAD)])
    assert (received.suspended, received.routed) == (0, 1)
    assert len(queued(box, "Errors")) == 1


def test_a_large_body_is_in_the_error_message_in_fragments(box: Box) -> None:
    location = box.add_location(pipelines.PassThrough(), route_failures=True)
    box.add_port("Errors", ERRORS)
    body = bytes(range(256)) * (FRAGMENT_SIZE // 64)
    with connect(box.url, user=box.host().role_name) as connection:
        Receiver(connection, RoutingTable()).receive(
            location, [Interchange(interchange_id=uuid.uuid4(), body=Bytes(body))]
        )
    assert len(queued(box, "Errors")) == 1
    rows = box.connection.execute("SELECT body FROM fragments ORDER BY number").fetchall()
    assert b"".join(piece for (piece,) in rows) == body
    consistent(box)


def test_many_failures_of_one_file_go_together(box: Box) -> None:
    location = box.add_location(route_failures=True)
    box.add_port("Errors", ERRORS)
    box.add_port("Europe", "Orders.Region == 'EU'")
    lines = [(GOOD, BAD, NOBODY)[number % 3] for number in range(3000)]
    [received] = box.receive(location, b"\n".join(lines))
    assert (received.published, received.suspended, received.routed) == (1000, 0, 2000)
    assert box.queued() == {"Errors": 2000, "Europe": 1000}
    assert box.count("spool") == 4000, "with the reports"
    assert box.one("SELECT count(DISTINCT instance_id) FROM instances") == 4000
    consistent(box)


@pytest.mark.parametrize("failing", [BAD, GOOD])
def test_what_came_in_with_a_demand_is_not_shown_to_other_hosts_as_an_error(box: Box, failing: bytes) -> None:
    """FMR-05: also not what nobody could read. It is suspended instead."""
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
    consistent(box)
