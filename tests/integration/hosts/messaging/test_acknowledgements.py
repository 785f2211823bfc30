"""Delivery notifications of send ports and receive locations: ACK-01 … 05, 08, FMR-07."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from lxml import etree

from postroom import Client, NoResponse, pipelines
from postroom.application import Schedule
from postroom.errors import MessageBoxUnavailable
from postroom.hosts.messaging.acknowledgements import Acknowledgements
from postroom.message import Message
from postroom.messagebox.connection import Connection
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.messagebox.queues import Cause
from postroom.operations.ports import send_ports
from postroom.system_properties import BTS
from tests.integration.hosts.conftest import StartHost
from tests.integration.hosts.messaging.test_failed_message_routing import fail_at
from tests.support.box import PROMOTE, Box, Region
from tests.support.changes import resume
from tests.support.recording_adapter import RecordedSend, RecordingAdapter
from tests.support.two_way import make_two_way
from tests.support.waiting import PATIENCE, wait_until

ORDERS = "Orders.Region == 'EU'"


def remove_port(box: Box, name: str, *, two_way: bool = False) -> None:
    """Remove a send port that has messages, as a deployment does."""
    send_ports.unenlist(box.connection, name)
    box.add_removed_port(box.remove_port(name), name, two_way=two_way)


def order(*, wants_ack: bool = True) -> Message:
    return Message.of(
        b"an order",
        promoted={Region: "EU", BTS.CorrelationToken: "token-1"},
        written={BTS.AckRequired: True} if wants_ack else {},
    )


def test_an_ack_is_published_after_a_send_if_the_publisher_requires_it(box: Box, start_host: StartHost) -> None:
    """ACK-01, 03: the properties of the message are demoted, and those of the ACK are promoted."""
    box.add_port("Web", ORDERS)
    box.add_port("Acks", "BTS.AckType == 'ACK' and BTS.AckSendPortName == 'Web'")
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    sent = order()
    box.agent().publish([sent])
    wait_until(lambda: [done.port for done in recorder.sent] == ["Web", "Acks"])
    web, ack = recorder.sent
    context = ack.message.context
    assert ack.body == b""
    assert context[BTS.AckID] == str(sent.message_id)
    assert context[BTS.AckOwnerID] == str(web.attempt.instance_id)
    assert context[BTS.AckOutboundTransportLocation] == "null://"
    assert context[BTS.CorrelationToken] == "token-1"
    assert context.is_promoted(BTS.CorrelationToken)
    assert context[Region] == "EU"
    assert not context.is_promoted(Region)
    assert BTS.AckFailureCode not in context
    wait_until(lambda: instance.counts.total() == 2)
    run_all_jobs_once(box.connection)
    assert (box.count("instances"), box.count("messages")) == (0, 0)
    assert check(box.connection) == []


@pytest.mark.parametrize("wants_ack", [False, True])
def test_no_ack_is_stored_without_a_request_or_without_a_subscriber(
    box: Box, start_host: StartHost, wants_ack: bool
) -> None:
    """ACK-02."""
    box.add_port("Web", ORDERS)
    box.add_port("Others", "BTS.AckSendPortName == 'Other'" if wants_ack else "BTS.AckType == 'ACK'")
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    box.agent().publish([order(wants_ack=wants_ack)])
    wait_until(lambda: instance.counts.total() == 1)
    assert [done.port for done in recorder.sent] == ["Web"]
    run_all_jobs_once(box.connection)
    assert box.count("messages") == 0


@pytest.mark.parametrize("wants_ack", [False, True])
def test_a_nack_is_published_when_the_last_attempt_fails(box: Box, start_host: StartHost, wants_ack: bool) -> None:
    """ACK-04, 05, 08: one NACK after all attempts. The message is suspended as usual."""
    box.add_port("Web", ORDERS, retry_count=2, retry_seconds=0)
    box.add_port("Monitor", "BTS.AckType == 'NACK' and BTS.AckSendPortName == 'Web'")
    recorder = RecordingAdapter(fail_at("Web"))
    instance = start_host(recorder)
    sent = order(wants_ack=wants_ack)
    box.agent().publish([sent])
    wait_until(lambda: instance.counts["completed"] == 1)
    assert [tried.port for tried in recorder.attempts] == ["Web", "Web", "Web", "Monitor"]
    assert instance.counts["suspended"] == 1
    assert box.suspended() == [("DELIVERY", True)]
    [nack] = recorder.sent
    context = nack.message.context
    assert context[BTS.AckID] == str(sent.message_id)
    assert context[BTS.AckFailureCode] == "0xc0c0167a"
    assert context.is_promoted(BTS.AckFailureCategory)
    assert context[BTS.AckDescription] == "The receiver is down.\nIt does not answer.\nWait."
    document = etree.fromstring(nack.body)
    assert document.findtext(".//NAckID") == str(sent.message_id)
    assert document.findtext(".//ErrorDescription") == "The receiver is down.\nIt does not answer.\nWait."
    assert check(box.connection) == []


def test_a_message_that_fails_again_after_resume_has_another_nack(box: Box, start_host: StartHost) -> None:
    box.add_port("Web", ORDERS, retry_count=0)
    box.add_port("Monitor", "BTS.AckType == 'NACK'")
    recorder = RecordingAdapter(fail_at("Web"))
    instance = start_host(recorder)
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["completed"] == 1)
    resume(box.connection, recorder.attempts[0].attempt.instance_id)
    wait_until(lambda: instance.counts["completed"] == 2)
    assert len({done.message.message_id for done in recorder.sent}) == 2


def test_a_nack_that_cannot_be_sent_has_no_nack_itself(box: Box, start_host: StartHost) -> None:
    box.add_port("Web", ORDERS, retry_count=0)
    box.add_port("Monitor", "BTS.AckType == 'NACK'", retry_count=0)
    instance = start_host(RecordingAdapter(fail_at("Web", "Monitor")))
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["suspended"] == 2)
    run_all_jobs_once(box.connection)
    assert box.count("instances") == 2


def test_a_failure_that_is_routed_has_a_nack_too(box: Box, start_host: StartHost) -> None:
    """FMR-07."""
    box.add_port("Web", ORDERS, retry_count=0, route_failures=True)
    box.add_port("Errors", "ErrorReport.SendPortName == 'Web'")
    box.add_port("Monitor", "BTS.AckSendPortName == 'Web'")
    recorder = RecordingAdapter(fail_at("Web"))
    start_host(recorder)
    box.agent().publish([order()])
    wait_until(lambda: sorted(done.port for done in recorder.sent) == ["Errors", "Monitor"])
    assert box.suspended() == []
    wait_until(lambda: box.count("instances") == 0)
    assert check(box.connection) == []


def test_an_interrupted_ack_is_published_without_sending_the_message_again(
    box: Box, start_host: StartHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.add_port("Web", ORDERS, retry_count=3, retry_seconds=0)
    box.add_port("Acks", "BTS.AckType == 'ACK'")
    complete, failures = Acknowledgements.complete, iter([True, False])

    def fail_once(self: Acknowledgements, connection: Connection, *arguments: object) -> None:
        if next(failures, False):
            raise MessageBoxUnavailable("The connection was lost.")
        complete(self, connection, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Acknowledgements, "complete", fail_once)
    recorder = RecordingAdapter()
    start_host(recorder)
    box.agent().publish([order()])
    wait_until(lambda: [done.port for done in recorder.sent] == ["Web", "Acks"])


def read_nack(done: RecordedSend) -> dict[str, str | None]:
    """Return the texts of the elements in the detail of a NACK."""
    return {element.tag: element.text for element in etree.fromstring(done.body).findall(".//detail//*")}


def test_a_message_of_a_removed_port_has_a_nack(box: Box, start_host: StartHost) -> None:
    box.add_port("Web", ORDERS)
    box.add_port("Monitor", "BTS.AckType == 'NACK' and BTS.AckSendPortName == 'Web'")
    box.agent().publish([order()])
    remove_port(box, "Web")
    recorder = RecordingAdapter()
    start_host(recorder)
    wait_until(lambda: recorder.bodies)
    assert "was removed after the message was queued" in str(read_nack(recorder.sent[0])["ErrorDescription"])
    assert box.suspended() == [("PORT_GONE", True)]
    assert check(box.connection) == []


def test_a_message_whose_service_window_never_opens_again_has_a_nack(box: Box, start_host: StartHost) -> None:
    over = Schedule(start=datetime(2020, 1, 1, tzinfo=UTC), stop=datetime(2020, 1, 2, tzinfo=UTC))
    box.add_port("Web", ORDERS, service_window=over)
    box.add_port("Monitor", "BTS.AckType == 'NACK' and BTS.AckSendPortName == 'Web'")
    recorder = RecordingAdapter()
    start_host(recorder)
    box.agent().publish([order()])
    wait_until(lambda: recorder.bodies)
    assert box.suspended() == [("SERVICE_WINDOW", True)]


@pytest.mark.parametrize("two_way", [False, True])
def test_the_caller_of_a_removed_port_gets_an_error_if_the_port_was_two_way(
    box: Box, start_host: StartHost, two_way: bool
) -> None:
    """A port that only gets a copy of the request does not answer the caller, and cannot fail for it either."""
    box.add_port("Web", ORDERS)
    if two_way:
        make_two_way(box, "Web")
    with Client(box.url) as client:
        response = client.start_request(b"an order", promoted={Region: "EU"}, timeout=PATIENCE)
        remove_port(box, "Web", two_way=two_way)
        start_host(RecordingAdapter())
        wait_until(box.suspended)
        if two_way:
            with pytest.raises(NoResponse, match="was removed"):
                response.result(PATIENCE)
        assert response.done() is two_way


@pytest.mark.parametrize("route_failures", [False, True])
def test_a_message_that_cannot_be_received_has_a_nack(box: Box, start_host: StartHost, route_failures: bool) -> None:
    """ACK-01, ACK-03, FMR-07: an interchange that cannot be read, and a document without a subscriber."""
    location = box.add_location(pipelines.JsonLines(promote=PROMOTE, recoverable=True), route_failures=route_failures)
    box.add_port("Monitor", "BTS.AckType == 'NACK' and BTS.AckReceivePortName == 'OrdersIn'")
    if route_failures:
        box.add_port("Errors", "ErrorReport.ReceivePortName == 'OrdersIn'")
    box.receive(location, b'no JSON\n{"region": "MARS"}')
    codes = ["0xc0c01680", "0xe0000001"]
    recorder = RecordingAdapter()
    start_host(recorder)
    wait_until(lambda: len(recorder.sent) == 2 + 2 * route_failures)
    nacks = [done for done in recorder.sent if done.port == "Monitor"]
    assert sorted(str(read_nack(nack)["ErrorCode"]) for nack in nacks) == codes
    for nack in nacks:
        context = nack.message.context
        assert context[BTS.AckInboundTransportLocation] == location.uri
        assert context[BTS.AckReceivePortID] == str(location.port_id)
        assert BTS.AckSendPortName not in context
        assert not context.is_promoted(BTS.ReceivePortName)
    if not route_failures:
        suspended = [row.instance_id for row in box.suspended_rows() if row.cause == Cause.FAILURE]
        owners = {nack.message.context[BTS.AckOwnerID] for nack in nacks}
        assert set(map(str, suspended)) == owners
    run_all_jobs_once(box.connection)
    assert check(box.connection) == []


def test_a_received_message_that_fails_again_after_resume_has_another_nack(box: Box, start_host: StartHost) -> None:
    location = box.add_location(pipelines.Json(promote=PROMOTE))
    box.add_port("Monitor", "BTS.AckType == 'NACK' and BTS.AckReceivePortName == 'OrdersIn'")
    recorder = RecordingAdapter()
    start_host(recorder)
    box.receive(location, b"no JSON")
    wait_until(lambda: len(recorder.sent) == 1)
    resume(box.connection, box.suspended_rows()[0].instance_id)
    wait_until(lambda: len(recorder.sent) == 2)
    assert len({done.message.context[BTS.AckOwnerID] for done in recorder.sent}) == 1


def test_no_nack_of_a_receive_location_is_stored_without_a_subscriber(box: Box) -> None:
    """ACK-02."""
    location = box.add_location(pipelines.Json(promote=PROMOTE))
    box.receive(location, b"no JSON")
    assert (box.count("messages"), box.count("queued")) == (1, 0)
