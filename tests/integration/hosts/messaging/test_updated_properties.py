"""Context properties that an adapter updates are kept with the queue row until the message is sent (SND-09)."""

from __future__ import annotations

from decimal import Decimal

from postroom.adapters import Attempt
from postroom.errors import DeliveryFailure
from postroom.message import Message
from postroom.messagebox.instances import InstanceQuery
from postroom.system_properties import BTS, HTTP
from tests.integration.hosts.conftest import StartHost
from tests.support import changes
from tests.support.box import Box, Priority, Region, Total
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until


def order() -> Message:
    return Message.of(b"an order", promoted={Region: "EU"}, written={Priority: 1})


def update_twice(message: Message, attempt: Attempt) -> None:
    """Fail the first three attempts. Update properties in the first two."""
    if attempt.number == 1:
        raise DeliveryFailure("No.", properties_to_update={HTTP.SubmissionHandle: "a", Priority: 2})
    if attempt.number == 2:
        raise DeliveryFailure("No.", properties_to_update={HTTP.SubmissionHandle: "b", Total: Decimal("1.50")})
    if attempt.number == 3:
        raise DeliveryFailure("No.")


def read_updates(recorder: RecordingAdapter) -> list[tuple[object, ...]]:
    return [
        tuple(attempt.message.context.get(prop) for prop in (HTTP.SubmissionHandle, Priority, Total))
        for attempt in recorder.attempts
    ]


def test_updated_properties_are_in_the_context_of_the_next_attempts(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'", retry_count=3, retry_seconds=0)
    recorder = RecordingAdapter(update_twice)
    instance = start_host(recorder)
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["completed"] == 1)
    last = ("b", 2, Decimal("1.50"))
    assert read_updates(recorder) == [(None, 1, None), ("a", 2, None), last, last]
    assert recorder.sent[0].message.context[BTS.SPName] == "Europe"
    assert recorder.sent[0].message.context[Region] == "EU"


def test_updated_properties_survive_suspending_and_resuming(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'", retry_count=1, retry_seconds=0)
    recorder = RecordingAdapter(update_twice)
    instance = start_host(recorder)
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["suspended"] == 1)
    recorder.behave = lambda message, attempt: None
    changes.resume_all(box.connection, InstanceQuery())
    wait_until(lambda: instance.counts["completed"] == 1)
    assert read_updates(recorder)[-1] == ("b", 2, Decimal("1.50"))


def test_updated_properties_survive_an_operator_who_suspends(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'", retry_count=3, retry_seconds=3600)
    recorder = RecordingAdapter(update_twice)
    instance = start_host(recorder)
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["retried"] == 1)
    recorder.behave = lambda message, attempt: None
    changes.suspend_all(box.connection, InstanceQuery())
    changes.resume_all(box.connection, InstanceQuery())
    wait_until(lambda: instance.counts["completed"] == 1)
    assert read_updates(recorder)[-1] == ("a", 2, None)


def test_another_port_does_not_see_the_updates(box: Box, start_host: StartHost) -> None:
    """MSG-06."""
    box.add_port("Europe", "Orders.Region == 'EU'", retry_count=3, retry_seconds=0)
    box.add_port("Audit", "Orders.Region == 'EU'", retry_count=3, retry_seconds=0)

    def fail_once_in_europe(message: Message, attempt: Attempt) -> None:
        if message.context[BTS.SPName] == "Europe":
            update_twice(message, attempt)

    recorder = RecordingAdapter(fail_once_in_europe)
    instance = start_host(recorder)
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["completed"] == 2)
    (audit,) = (sent for sent in recorder.sent if sent.port == "Audit")
    assert audit.message.context.get(HTTP.SubmissionHandle) is None
    assert audit.message.context[Priority] == 1
