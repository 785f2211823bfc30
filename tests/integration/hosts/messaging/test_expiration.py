"""Messages expire: by the limit of their send port, or by their own expiration time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from postroom import Schedule
from postroom.message import Message
from postroom.messagebox.instances import InstanceQuery, list_instances
from postroom.messagebox.maintenance.check import check
from postroom.operations.instances.advice import get_advice
from postroom.system_properties import BTS, ErrorReport
from tests.integration.hosts.conftest import StartHost
from tests.support import changes
from tests.support.box import Box, Region
from tests.support.recording_adapter import RecordingAdapter, fail_always
from tests.support.waiting import wait_until


def order(**written: object) -> Message:
    properties = {getattr(BTS, name): value for name, value in written.items()}
    return Message.of(b"an order", promoted={Region: "EU"}, written=properties)


def let_time_pass(box: Box, seconds: int) -> None:
    box.age_queues(timedelta(seconds=seconds))


def test_a_message_that_has_waited_for_too_long_is_suspended_with_the_reason(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'", expire_seconds=3600)
    box.agent().publish([order()])
    let_time_pass(box, 3601)
    box.agent().publish([order()])
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    wait_until(lambda: instance.counts["suspended"] == 1)
    wait_until(lambda: instance.counts["completed"] == 1)
    (expired,) = list_instances(box.connection, InstanceQuery())
    assert (expired.error_code, expired.attempt) == ("EXPIRED", 1)
    assert expired.reason.startswith("The message has waited for 1:00:01")
    assert "resume" in (get_advice(expired) or "")
    assert len(recorder.attempts) == 1


def test_a_resumed_message_has_its_whole_time_again(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'", expire_seconds=3600)
    box.agent().publish([order()])
    let_time_pass(box, 3601)
    instance = start_host(RecordingAdapter())
    wait_until(lambda: instance.counts["suspended"] == 1)
    changes.resume_all(box.connection, InstanceQuery())
    wait_until(lambda: instance.counts["completed"] == 1)
    assert check(box.connection) == []


@pytest.mark.parametrize(("seconds", "outcome"), [(-1, "suspended"), (3600, "completed")])
def test_a_message_is_not_sent_after_its_own_expiration_time(
    box: Box, start_host: StartHost, seconds: int, outcome: str
) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    instance = start_host(RecordingAdapter())
    box.agent().publish([order(ExpirationTime=datetime.now(UTC) + timedelta(seconds=seconds))])
    wait_until(lambda: instance.counts[outcome] == 1)
    if outcome == "suspended":
        assert box.suspended() == [("EXPIRED", True)]
        assert "BTS.ExpirationTime" in box.read_error()


def test_an_expired_message_is_routed_as_a_failure(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'", expire_seconds=3600, route_failures=True)
    box.add_port("Failures", "ErrorReport.ErrorType == 'FailedMessage'")
    box.agent().publish([order()])
    let_time_pass(box, 3601)
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    wait_until(lambda: instance.counts["completed"] == 1)
    (sent,) = recorder.sent
    assert sent.port == "Failures"
    assert sent.message.context[ErrorReport.FailureCode] == "0xe000000a"


def test_a_retry_and_a_service_window_are_not_waited_for_beyond_the_expiration(box: Box, start_host: StartHost) -> None:
    box.add_port("Retried", "Orders.Region == 'EU'", expire_seconds=3600, retry_seconds=86_400)
    box.add_port("Closed", "Orders.Region == 'EU'", expire_seconds=3600, service_window=Schedule(start="2999-01-01"))
    instance = start_host(RecordingAdapter(fail_always))
    box.agent().publish([order()])
    wait_until(lambda: (instance.counts["retried"], instance.counts["postponed"]) == (1, 1))
    limit = datetime.now(UTC) + timedelta(hours=1)
    assert [row.valid_from is not None and row.valid_from <= limit for row in box.scheduled_rows()] == [True, True]
