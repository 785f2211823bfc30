"""Failed-message routing of send ports and of resumed messages: FMR-01 … 05, 09, NRF-07, 12."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

import tests
from postroom.adapters import Attempt
from postroom.agent.error_messages import Failure
from postroom.agent.failed_messages import ErrorMessage, FailedMessages, PublishMore
from postroom.clock import system_clock
from postroom.errors import ClaimLost, DeliveryRefused, MessageBoxUnavailable
from postroom.message import FRAGMENT_SIZE, Context, Message, Part
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.messagebox.queues import ClaimedMessage, HostQueues
from postroom.operations.instances.changes import resume_with_body
from postroom.properties import Property
from postroom.system_properties import BTS, ErrorReport
from tests.integration.hosts.conftest import StartHost
from tests.integration.hosts.dequeue.test_takeover import count_locks, detect_dead_instances
from tests.support.box import Box, Region, Total
from tests.support.changes import resume
from tests.support.cut_connections import cut_before_commit
from tests.support.host_settings import set_trust
from tests.support.recording_adapter import RecordingAdapter, fail_always
from tests.support.waiting import wait_until

ERRORS = "ErrorReport.ErrorType == 'FailedMessage'"


def order(body: bytes = b"an order") -> Message:
    return Message.of(body, promoted={Region: "EU", BTS.MessageType: "order"}, written={BTS.SourceParty: "ACME"})


def fail_at(*names: str) -> Callable[[Message, Attempt], None]:
    def behave(message: Message, attempt: Attempt) -> None:
        if message.context[BTS.SPName] in names:
            fail_always(message, attempt)

    return behave


def assert_nothing_left(box: Box) -> None:
    run_all_jobs_once(box.connection)
    assert (box.count("instances"), box.count("messages"), box.count("parts"), box.count("fragments")) == (0, 0, 0, 0)
    assert check(box.connection) == []


@pytest.mark.parametrize("retry_count", [0, 2])
def test_after_the_last_attempt_an_error_message_is_sent_and_nothing_is_suspended(
    box: Box, start_host: StartHost, retry_count: int
) -> None:
    """ACC-31."""
    box.add_port("Web", "Orders.Region == 'EU'", retry_count=retry_count, retry_seconds=0, route_failures=True)
    box.add_port("Errors", "ErrorReport.SendPortName == 'Web'")
    box.add_port("ByType", "BTS.MessageType == 'order' and Orders.Region == 'US'")
    recorder = RecordingAdapter(fail_at("Web"))
    instance = start_host(recorder)
    sent = order()
    box.agent().publish([sent])
    wait_until(lambda: instance.counts["completed"] == 1)
    assert len(recorder.attempts) == retry_count + 2
    [error] = recorder.sent
    context = error.message.context
    assert (error.port, error.body) == ("Errors", b"an order")
    assert error.message.message_id != sent.message_id
    assert not context.is_promoted(Region)
    assert (context[Region], context[BTS.MessageType], context[BTS.SourceParty]) == ("EU", "order", "ACME")
    assert context[ErrorReport.SendPortName] == "Web"
    assert context[ErrorReport.OutboundTransportLocation] == "null://"
    assert context[ErrorReport.MessageType] == "order"
    assert context[ErrorReport.FailureCode] == "0xc0c0167a"
    assert context[ErrorReport.FailureMessageID] == str(sent.message_id)
    assert context[ErrorReport.FailureInstanceID] == str(recorder.attempts[0].attempt.instance_id)
    assert context[ErrorReport.Description] == "The receiver is down.\nIt does not answer.\nWait."
    assert instance.counts["suspended"] == 0
    assert_nothing_left(box)


def test_a_permanent_failure_is_published_as_an_error_message_at_once(box: Box, start_host: StartHost) -> None:
    box.add_port("Web", "Orders.Region == 'EU'", retry_count=3, retry_seconds=0, route_failures=True)
    box.add_port("Errors", "ErrorReport.FailureCode == '0xe0000002'")

    def refuse(message: Message, attempt: Attempt) -> None:
        if message.context[BTS.SPName] == "Web":
            raise DeliveryRefused("It does not fit.")

    recorder = RecordingAdapter(refuse)
    instance = start_host(recorder)
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["completed"] == 1)
    assert [attempt.port for attempt in recorder.attempts] == ["Web", "Errors"]
    assert_nothing_left(box)


@pytest.mark.parametrize("error_filter", ["ErrorReport.SendPortName == 'Other'", "Orders.Region == 'EU'"])
def test_a_failure_without_a_subscriber_is_suspended(box: Box, start_host: StartHost, error_filter: str) -> None:
    """FMR-04, 09: a subscriber of the original does not get the error message."""
    box.add_port("Web", "Orders.Region == 'EU'", retry_count=0, route_failures=True)
    box.add_port("Errors", error_filter)
    instance = start_host(RecordingAdapter(fail_at("Web")))
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["suspended"] == 1)
    assert box.suspended() == [("DELIVERY", True)]
    assert box.count("transient properties") == 0
    assert check(box.connection) == []


def test_an_error_message_that_fails_is_suspended_and_not_routed_again(box: Box, start_host: StartHost) -> None:
    box.add_port("Web", "Orders.Region == 'EU'", retry_count=0, route_failures=True)
    box.add_port("Errors", ERRORS, retry_count=0, route_failures=True)
    recorder = RecordingAdapter(fail_at("Web", "Errors"))
    instance = start_host(recorder)
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["suspended"] == 1)
    assert [attempt.port for attempt in recorder.attempts] == ["Web", "Errors"]
    assert [row.port for row in box.suspended_rows()] == ["Errors"]
    assert check(box.connection) == []


def test_other_subscribers_of_the_original_are_not_affected(box: Box, start_host: StartHost) -> None:
    """Two ports receive the message, and one fails. The shared parts are deleted with the last of three messages."""
    box.add_port("Web", "Orders.Region == 'EU'", retry_count=0, route_failures=True)
    box.add_port("Archive", "Orders.Region == 'EU'")
    box.add_port("Errors", ERRORS, state="stopped")
    recorder = RecordingAdapter(fail_at("Web"))
    instance = start_host(recorder)
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["completed"] == 1 and instance.counts["finished"] == 1)
    run_all_jobs_once(box.connection)
    assert box.suspended() == [("PORT_STOPPED", True)]
    assert (box.count("messages"), box.count("parts")) == (1, 1)
    assert check(box.connection) == []
    box.resume_all()
    wait_until(lambda: instance.counts["completed"] == 2)
    assert recorder.bodies == [b"an order", b"an order"]
    assert_nothing_left(box)


def test_a_large_body_is_shared_and_not_copied(box: Box, start_host: StartHost) -> None:
    box.add_port("Web", "Orders.Region == 'EU'", retry_count=0, route_failures=True)
    box.add_port("Errors", ERRORS, state="stopped")
    body = bytes(range(256)) * (FRAGMENT_SIZE // 64)
    recorder = RecordingAdapter(fail_at("Web"))
    instance = start_host(recorder)
    message = Message.of(body, promoted={Region: "EU"}, parts=[Part(name="note", body=order().parts[0].body)])
    box.agent().publish([message])
    wait_until(lambda: instance.counts["finished"] == 1)
    run_all_jobs_once(box.connection)
    assert box.count("parts") == 2
    assert box.messages()[0].part_ids == [part.part_id for part in message.parts]
    assert check(box.connection) == []
    box.resume_all()
    wait_until(lambda: instance.counts["completed"] == 1)
    assert recorder.bodies == [body]
    assert [part.name for part in recorder.sent[0].message.parts] == ["body", "note"]
    assert_nothing_left(box)


def test_the_error_message_has_the_publisher_of_the_original(box: Box, start_host: StartHost) -> None:
    """FMR-05. Another host sends the message."""
    box.add_host("Sender")
    box.add_port("Web", "Orders.Region == 'EU'", retry_count=0, route_failures=True, host="Sender")
    box.add_port("Errors", ERRORS, state="stopped")
    with connect(box.url, user=box.host().role_name) as publisher:
        box.agent(connection=publisher).publish([order()])
    instance = start_host(RecordingAdapter(fail_at("Web")), "Sender")
    wait_until(lambda: instance.counts["finished"] == 1)
    assert box.messages()[-1].published_by == box.host().role_name


@pytest.mark.parametrize("trusted", [False, True])
def test_the_error_message_has_the_originator_of_the_original(box: Box, start_host: StartHost, trusted: bool) -> None:
    """FMR-05, for a trusted and an untrusted sending host."""
    sender = box.add_host("Sender")
    set_trust(box.connection, sender.host_id, trusted)
    box.add_port("Web", "Orders.Region == 'EU'", retry_count=0, route_failures=True, host="Sender")
    box.add_port("Errors", ERRORS)
    recorder = RecordingAdapter(fail_at("Web"))
    start_host(recorder)
    start_host(recorder, "Sender")
    who = {BTS.OriginatorSID: "CONTOSO\\anna", BTS.OriginatorPID: "Contoso"}
    box.agent().publish([Message.of(b"x", promoted={Region: "EU"}, written=who)])  # the owner is trusted
    wait_until(lambda: len(recorder.sent) == 1)
    context = recorder.sent[0].message.context
    assert (context[BTS.OriginatorSID], context[BTS.OriginatorPID]) == ("CONTOSO\\anna", "Contoso")
    box.agent().publish([Message.of(b"y", promoted={Region: "EU"})])
    wait_until(lambda: len(recorder.sent) == 2)
    context = recorder.sent[1].message.context
    assert (context[BTS.OriginatorSID], context[BTS.OriginatorPID]) == ("postgres", "Guest")


def test_a_host_sets_another_originator_only_for_error_reports(box: Box) -> None:
    """The MessageBox ignores a forged context: properties and message predicates are those of the original."""
    box.add_port("Web", "Orders.Region == 'EU'", route_failures=True)
    box.add_port("Errors", ERRORS)
    original = Message.of(b"x", promoted={Region: "EU"}, written={BTS.SourceParty: "Contoso"})
    box.agent().publish([original])
    with connect(box.url, user=box.host().role_name) as host:
        claimed = claim(box, host)
        forged = failure(claimed).build_context(Context().promote(Region, "US")).promote(Region, "US")
        error_id = uuid.uuid4()
        context = forged.write(BTS.SourceParty, "Fabrikam").to_json()
        assert HostQueues("Default").insert_error_message(
            host, claimed, error_id=error_id, context=context, adapter=None, uri=None
        )
    stored = box.message(error_id).context
    assert (stored[Region], stored.is_promoted(Region), stored[BTS.SourceParty]) == ("EU", False, "Contoso")
    assert stored.promoted == failure(claimed).build_context(original.context).promoted


def test_the_error_message_keeps_the_types_of_values(box: Box, start_host: StartHost) -> None:
    box.add_port("Web", "Orders.Region == 'EU'", retry_count=0, route_failures=True)
    box.add_port("Errors", ERRORS)
    recorder = RecordingAdapter(fail_at("Web"))
    instance = start_host(recorder)
    original = Message.of(b"x", promoted={Region: "EU", Total: 12})
    box.agent().publish([original])
    wait_until(lambda: instance.counts["completed"] == 1)
    assert repr(recorder.sent[0].message.context[Total]) == "Decimal('12')"


# -- crashes ----------------------------------------------------------------------------------------------------


def claim(box: Box, connection: Connection) -> ClaimedMessage:
    number = box.add_host_instance(host_id=box.host().host_id)
    [claimed] = HostQueues("Default").dequeue(
        connection,
        claim_id=uuid.uuid4(),
        host_instance=number,
        service_class=ServiceClass.MESSAGING_IN_PROCESS,
        limit=10,
    )
    return claimed


def failure(claimed: ClaimedMessage) -> Failure:
    return Failure(
        code="DELIVERY",
        description="The receiver is down.",
        message_id=claimed.message_id,
        instance_id=claimed.instance_id,
        failed_at=system_clock(),
        send_port="Web",
    )


def test_a_crash_before_the_commit_of_the_error_message_loses_nothing(box: Box) -> None:
    """Nothing is lost or duplicated: the message stays in its queue, and the next host publishes the error message."""
    box.add_port("Web", "Orders.Region == 'EU'", route_failures=True)
    box.add_port("Errors", ERRORS, state="stopped")
    box.agent().publish([order()])

    with connect(box.url, user=box.host().role_name) as connection:
        claimed = claim(box, connection)
        with cut_before_commit(box, ErrorMessage), pytest.raises(MessageBoxUnavailable):
            FailedMessages(HostQueues("Default")).route(connection, claimed, failure(claimed))
    assert (box.count("messages"), box.count("queued"), box.count("suspended")) == (1, 1, 0)
    with connect(box.url, user=box.host().role_name) as connection:
        assert FailedMessages(HostQueues("Default")).route(connection, claimed, failure(claimed))
        with pytest.raises(ClaimLost):
            FailedMessages(HostQueues("Default")).route(connection, claimed, failure(claimed))
    assert (box.count("queued"), box.suspended()) == (0, [("PORT_STOPPED", True)])
    run_all_jobs_once(box.connection)
    assert (box.count("messages"), box.count("parts")) == (1, 1)
    assert check(box.connection) == []


def test_a_crash_during_many_failures_loses_nothing(box: Box, start_host: StartHost, tmp_path: Path) -> None:
    """kill -9 while error messages are being published. Another host continues. Every message has one error message."""
    box.add_port("Web", "Orders.Region == 'EU'", retry_count=0, route_failures=True)
    box.add_port("Errors", ERRORS, state="stopped")
    count = 300
    box.agent().publish([order(str(number).encode()) for number in range(count)])
    command = [sys.executable, "-m", "tests.support.failing_host", box.url, "Default", str(tmp_path)]
    process = subprocess.Popen(command, cwd=Path(tests.__path__[0]).parent)
    try:
        wait_until(lambda: box.count("suspended") > 10)
    finally:
        process.kill()
        process.wait()
    assert box.count("queued") > 0, "killed too late"
    start_host(RecordingAdapter(fail_always))
    wait_until(lambda: count_locks(box) == 1)
    detect_dead_instances(box)
    wait_until(lambda: box.count("queued") == 0)
    assert box.count("suspended") == count
    assert len({row.context[ErrorReport.FailureMessageID] for row in box.suspended_rows()}) == count
    run_all_jobs_once(box.connection)
    assert (box.count("messages"), box.count("parts")) == (count, count)
    assert check(box.connection) == []


class FailOnce(FailedMessages):
    """Raises an error at the first call of ``route``."""

    def __init__(self, error: Exception) -> None:
        super().__init__(HostQueues("Default"))
        self._error: Exception | None = error

    def route(
        self,
        connection: Connection,
        claimed: ClaimedMessage,
        failure: Failure,
        *,
        and_publish: PublishMore | None = None,
    ) -> bool:
        error, self._error = self._error, None
        if error is not None:
            raise error
        return super().route(connection, claimed, failure, and_publish=and_publish)


def test_routing_a_failure_is_retried_after_a_database_error(
    box: Box, start_host: StartHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_once = FailOnce(MessageBoxUnavailable("no space left on device"))
    monkeypatch.setattr("postroom.hosts.messaging.failures.FailedMessages", lambda queues: fail_once)
    box.add_port("Web", "Orders.Region == 'EU'", retry_count=0, route_failures=True)
    box.add_port("Errors", ERRORS)
    recorder = RecordingAdapter(fail_at("Web"))
    instance = start_host(recorder)
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["completed"] == 1)
    assert [attempt.port for attempt in recorder.attempts] == ["Web", "Web", "Errors"]
    assert (instance.counts["retried"], instance.counts["suspended"]) == (1, 0)
    assert_nothing_left(box)


def test_a_failure_that_cannot_be_routed_is_suspended(
    box: Box, start_host: StartHost, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        "postroom.hosts.messaging.failures.FailedMessages", lambda queues: FailOnce(KeyError("a defect"))
    )
    box.add_port("Web", "Orders.Region == 'EU'", retry_count=0, route_failures=True)
    box.add_port("Errors", ERRORS)
    instance = start_host(RecordingAdapter(fail_at("Web")))
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["suspended"] == 1)
    assert box.suspended() == [("DELIVERY", True)]
    assert "could not be published" in caplog.text


def test_a_host_whose_claim_was_taken_over_publishes_no_error_message(box: Box) -> None:
    box.add_port("Web", "Orders.Region == 'EU'", route_failures=True)
    box.add_port("Errors", ERRORS)
    box.agent().publish([order()])
    with connect(box.url, user=box.host().role_name) as connection:
        claimed = claim(box, connection)
        box.claim_all()
        with pytest.raises(ClaimLost):
            FailedMessages(HostQueues("Default")).route(connection, claimed, failure(claimed))
    assert (box.count("messages"), box.count("queued"), box.count("transient properties")) == (1, 1, 0)


@pytest.mark.parametrize("authorised", [True, False])
def test_the_error_message_has_the_message_predicates_of_the_original(
    box: Box, start_host: StartHost, authorised: bool
) -> None:
    """FMR-05, NRF-17: a host without the certificate does not get it. Without an authorised host it is suspended."""
    certificate = Property("Hosts.Certificate", str)
    box.add_host("Sender")
    box.add_port("Web", "Orders.Region == 'EU'", retry_count=0, route_failures=True, host="Sender")
    box.add_port("Errors", ERRORS, state="stopped")
    if authorised:
        box.add_port("OwnErrors", ERRORS, state="stopped", host="Sender")
    with box.connection.transaction():
        box.connection.execute("SELECT change_routing()")
        box.add_host_property(box.host("Sender").host_id, certificate.key, "A909")
    box.agent().publish([Message.of(b"sealed", promoted={Region: "EU"}, predicates={certificate: "A909"})])
    instance = start_host(RecordingAdapter(fail_at("Web")), "Sender")
    wait_until(lambda: instance.counts["finished" if authorised else "suspended"] == 1)
    [(service, code)] = [(row.port, row.error_code) for row in box.suspended_rows() if row.port]
    assert (service, code) == (("OwnErrors", "PORT_STOPPED") if authorised else ("Web", "DELIVERY"))
    assert box.count("transient predicates") == 0
    assert check(box.connection) == []


def test_a_missing_message_is_suspended_without_an_error_message(box: Box) -> None:
    box.add_port("Errors", ERRORS)
    box.add_port("Web", "Orders.Region == 'EU'", route_failures=True)
    box.agent().publish([order()])
    with connect(box.url, user=box.host().role_name) as connection:
        claimed = claim(box, connection)._replace(context=None)
        assert not FailedMessages(HostQueues("Default")).route(connection, claimed, failure(claimed))


# -- resumed messages that fail again ---------------------------------------------------------------------------


@pytest.mark.parametrize(("body", "code"), [(b"{broken", "0xe0000001"), (b'{"region": "nowhere"}', "0xc0c01680")])
def test_a_resumed_message_that_fails_again_is_routed(box: Box, start_host: StartHost, body: bytes, code: str) -> None:
    """The first error message had no subscriber. The second one has."""
    box.receive(box.add_location(route_failures=True), body)
    suspended = box.resumable_row().instance_id
    reports = [str(row.instance_id) for row in box.suspended_rows() if not row.resumable]
    box.add_port("Errors", ERRORS)
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    resume(box.connection, suspended)
    wait_until(lambda: instance.counts["completed"] == 1)
    [error] = recorder.sent
    context = error.message.context
    assert error.body == body
    assert context[ErrorReport.FailureCode] == code
    assert context[ErrorReport.ReceivePortName] == "OrdersIn"
    assert context[ErrorReport.FailureInstanceID] == str(suspended)
    assert not context.is_promoted(BTS.ReceivePortName)
    run_all_jobs_once(box.connection)
    left = [str(row.instance_id) for row in box.suspended_rows()]
    assert left == reports, "the report stays, and the error message contains its id"
    assert ([context[ErrorReport.RoutingFailureReportID]] if reports else []) == reports
    assert check(box.connection) == []


def test_a_fixed_message_without_a_subscriber_is_reported_and_routed(box: Box, start_host: StartHost) -> None:
    box.receive(box.add_location(route_failures=True), b"{broken")
    suspended = box.suspended_rows()[0].instance_id
    box.add_port("Errors", "exists(ErrorReport.RoutingFailureReportID)")
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    resume_with_body(box.connection, suspended, b'{"region": "nowhere"}')
    wait_until(lambda: instance.counts["completed"] == 1)
    assert recorder.bodies == [b'{"region": "nowhere"}']
    report = box.report()
    assert str(report.instance_id) == recorder.sent[0].message.context[ErrorReport.RoutingFailureReportID]
    assert report.related_instance_id is None
    assert report.uri == "file:///in/*.json", "the report has the address of the location"
    assert check(box.connection) == []


def test_without_routing_a_resumed_message_is_suspended_again(box: Box, start_host: StartHost) -> None:
    box.receive(box.add_location(), b"{broken")
    box.add_port("Errors", ERRORS)
    instance = start_host(RecordingAdapter())
    resume(box.connection, box.suspended_rows()[0].instance_id)
    wait_until(lambda: instance.counts["suspended"] == 1)
    assert box.suspended() == [("PIPELINE", True)]


def test_the_stored_error_context_can_be_read_back(box: Box) -> None:
    box.add_port("Web", "Orders.Region == 'EU'", route_failures=True)
    box.add_port("Errors", ERRORS, state="stopped")
    box.agent().publish([order()])
    with connect(box.url, user=box.host().role_name) as connection:
        claimed = claim(box, connection)
        assert FailedMessages(HostQueues("Default")).route(connection, claimed, failure(claimed))
    assert box.suspended_rows()[0].context[ErrorReport.FailureInstanceID] == str(claimed.instance_id)
