"""A failed attempt is retried by the policy of the port, then suspended (SND-03, 04, 05, 07; ACC-24, 30)."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from postroom import adapters, secret
from postroom.adapters import Attempt
from postroom.errors import DeliveryFailure, DeliveryRefused
from postroom.hosts import HostInstance
from postroom.message import Message
from postroom.messagebox.instances import InstanceState
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.messagebox.queues import Cause
from postroom.operations.ports import send_ports
from postroom.system_properties import BTS
from tests.integration.hosts.conftest import StartHost
from tests.support.box import Box, Region
from tests.support.http_receiver import http_receiver
from tests.support.recording_adapter import RecordingAdapter, fail_always
from tests.support.waiting import wait_until


def order(body: bytes = b"an order") -> Message:
    return Message.of(body, promoted={Region: "EU"})


@pytest.mark.parametrize("retry_count", [0, 1, 3])
def test_a_message_is_suspended_after_the_first_attempt_and_all_retries(
    box: Box, start_host: StartHost, retry_count: int
) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'", retry_count=retry_count, retry_seconds=0)
    recorder = RecordingAdapter(fail_always)
    instance = start_host(recorder)
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["suspended"] == 1)
    assert [attempt.attempt.number for attempt in recorder.attempts] == list(range(1, retry_count + 2))
    assert len({attempt.attempt.instance_id for attempt in recorder.attempts}) == 1
    assert [attempt.message.context[BTS.RetryCount] for attempt in recorder.attempts] == list(
        range(retry_count, -1, -1)
    )
    [row] = box.suspended_rows()
    assert (row.error_code, row.cause) == ("DELIVERY", Cause.FAILURE)
    assert row.error_description == "The receiver is down.\nIt does not answer.\nWait."
    assert (row.adapter, row.uri, row.resumable, row.attempt) == ("null", "null://", True, retry_count)
    assert instance.counts["retried"] == retry_count


def test_a_message_that_is_suspended_as_non_resumable_keeps_its_retries(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'", retry_count=1, retry_seconds=0)
    instance = start_host(RecordingAdapter(fail_always))
    message = order()
    box.agent().publish([message.with_context(message.context.write(BTS.SuspendAsNonResumable, True))])
    wait_until(lambda: instance.counts["suspended"] == 1)
    assert instance.counts["retried"] == 1
    assert box.suspended() == [("DELIVERY", False)]


def test_a_message_that_succeeds_at_a_retry_is_completed(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'", retry_count=3, retry_seconds=0)

    def succeed_at_third_attempt(message: Message, attempt: Attempt) -> None:
        if attempt.number < 3:
            fail_always(message, attempt)

    recorder = RecordingAdapter(succeed_at_third_attempt)
    instance = start_host(recorder)
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["completed"] == 1)
    assert len(recorder.attempts) == 3
    assert box.count("instances") == 0


def test_a_resumed_message_has_all_its_attempts_again(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'", retry_count=1, retry_seconds=0)
    recorder = RecordingAdapter(fail_always)
    instance = start_host(recorder)
    box.agent().publish([order()])
    for round_number in (1, 2):
        wait_until(lambda expected=round_number: instance.counts["suspended"] == expected)  # type: ignore[misc]
        assert len(recorder.attempts) == 2 * round_number
        box.resume_all()


def test_failures_do_not_affect_successes_of_the_same_claim(box: Box, start_host: StartHost) -> None:
    """SND-07: attempts are counted per message, also if messages are claimed and stored together."""
    box.add_port("Europe", "Orders.Region == 'EU'", retry_count=1, retry_seconds=0)

    def fail_odd_numbers(message: Message, attempt: Attempt) -> None:
        assert message.body is not None
        if int(message.body.data) % 2:
            fail_always(message, attempt)

    recorder = RecordingAdapter(fail_odd_numbers)
    box.agent().publish([order(str(number).encode()) for number in range(60)])
    instance = start_host(recorder)
    wait_until(lambda: instance.counts["suspended"] == 30)
    assert instance.counts["completed"] == 30
    assert len(recorder.attempts) == 30 + 2 * 30
    assert len({row.message_id for row in box.suspended_rows()}) == 30
    run_all_jobs_once(box.connection)
    assert box.count("messages") == 30
    assert check(box.connection) == []


def test_a_permanent_failure_is_suspended_at_once(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'", retry_count=3, retry_seconds=0)

    def refuse(message: Message, attempt: Attempt) -> None:
        raise DeliveryRefused("It does not fit.")

    recorder = RecordingAdapter(refuse)
    instance = start_host(recorder)
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["suspended"] == 1)
    assert len(recorder.attempts) == 1
    assert box.suspended() == [("DELIVERY_REFUSED", True)]


def test_every_other_exception_is_a_failed_attempt(
    box: Box, start_host: StartHost, caplog: pytest.LogCaptureFixture
) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'", retry_count=1, retry_seconds=0)

    def raise_defect(message: Message, attempt: Attempt) -> None:
        raise ZeroDivisionError("by nothing")

    recorder = RecordingAdapter(raise_defect)
    instance = start_host(recorder)
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["suspended"] == 1)
    assert len(recorder.attempts) == 2
    assert box.suspended() == [("UNEXPECTED", True)]
    assert "ZeroDivisionError: by nothing" in box.read_error()
    assert "raise_defect" in caplog.text, "the log contains the traceback"


def test_characters_that_cannot_be_stored_are_replaced_in_the_error_description(
    box: Box, start_host: StartHost, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="postroom")  # the report of pytest cannot contain these characters either
    box.add_port("Europe", "Orders.Region == 'EU'", retry_count=0)

    def raise_invalid_characters(message: Message, attempt: Attempt) -> None:
        raise ZeroDivisionError("a \0 and a \ud800 in it")

    instance = start_host(RecordingAdapter(raise_invalid_characters))
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["suspended"] == 1)
    assert "ZeroDivisionError: a \\0 and a ? in it" in box.read_error()


def test_an_adapter_that_cannot_be_built_suspends_at_once(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'", adapter={"kind": "of another version"}, retry_seconds=0)
    instance = start_host(RecordingAdapter())
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["suspended"] == 1)
    assert box.suspended() == [("DEFINITION", True)]


def test_a_message_is_in_the_scheduled_queue_between_attempts(box: Box, start_host: StartHost) -> None:
    """DEQ-16: it is not dequeued before it is due. Then any host instance dequeues it."""
    box.add_port("Europe", "Orders.Region == 'EU'", retry_count=1, retry_seconds=3600)
    recorder = RecordingAdapter(fail_always)
    instance = start_host(recorder)
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["retried"] == 1)
    [row] = box.scheduled_rows()
    assert (row.attempt, row.error_code) == (1, "DELIVERY")
    assert row.valid_from is not None
    assert timedelta(minutes=59) <= row.valid_from - datetime.now(UTC) <= timedelta(hours=1)
    assert box.instances()[0].state == InstanceState.RETRYING
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["retried"] == 2, what="another poll")
    assert len(recorder.attempts) == 2, "the first message still waits"
    assert instance.counts["suspended"] == 0
    instance.stop()
    later = RecordingAdapter()
    in_an_hour = start_host(later, clock=lambda: datetime.now(UTC) + timedelta(hours=1))
    wait_until(lambda: in_an_hour.counts["completed"] == 2)
    assert [message.attempt.number for message in later.sent] == [2, 2]


def test_unenlisting_does_not_affect_a_retrying_instance(box: Box, start_host: StartHost) -> None:
    """ACC-24."""
    box.add_port("Europe", "Orders.Region == 'EU'", retry_count=5, retry_seconds=3600)
    is_down = True

    def fail_while_down(message: Message, attempt: Attempt) -> None:
        if is_down:
            raise DeliveryFailure("The receiver is down.")

    recorder = RecordingAdapter(fail_while_down)
    instance = start_host(recorder)
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["retried"] == 1)
    send_ports.unenlist(box.connection, "Europe")
    is_down = False
    box.make_due()
    wait_until(lambda: instance.counts["completed"] == 1)
    assert [message.attempt.number for message in recorder.sent] == [2]


def test_a_missing_secret_is_an_error_of_the_port_that_is_retried(
    box: Box, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = tmp_path / "token"
    with http_receiver() as receiver:
        adapter = adapters.Http(receiver.url, headers={"Authorization": secret(file=token)})
        box.add_port("Web", "Orders.Region == 'EU'", adapter=adapter.model_dump(mode="json"), retry_seconds=0)
        with caplog.at_level(logging.WARNING), HostInstance(box.url, "Default", tmp_path, as_role=True) as instance:
            assert f"send port Web: The secret in the file {token} cannot be read" in caplog.text
            box.agent().publish([order()])
            wait_until(lambda: instance.counts["suspended"] == 1)
            assert instance.counts["retried"] == 3
            assert box.suspended() == [("SECRET", True)]
            token.write_text("Bearer x")
            box.resume_all()
            wait_until(lambda: instance.counts["completed"] == 1)
        assert receiver.accepted[0].headers["Authorization"] == "Bearer x"
