"""Delivery notifications of send ports: ACK-01 … 05, 08, FMR-07."""

from __future__ import annotations

import pytest
from lxml import etree

from postroom.errors import MessageBoxUnavailable
from postroom.hosts.messaging.acknowledgements import Acknowledgements
from postroom.message import Message
from postroom.messagebox.check import check
from postroom.messagebox.connection import Connection
from postroom.messagebox.jobs import run_all_jobs_once
from postroom.operations.instances.changes import resume
from postroom.system_properties import BTS
from tests.integration.hosts.conftest import StartHost
from tests.integration.hosts.messaging.test_failed_message_routing import fail_at
from tests.support.box import Box, Region
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

ORDERS = "Orders.Region == 'EU'"


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
    assert (box.count("instances"), box.count("spool")) == (0, 0)
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
    assert box.count("spool") == 0


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
