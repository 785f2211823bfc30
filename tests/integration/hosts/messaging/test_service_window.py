"""A send port sends only inside its service window (SND-10, INS-03, INS-10)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from postroom import BackupTransport, Retry, Schedule, adapters
from postroom.adapters import Attempt
from postroom.errors import DeliveryFailure
from postroom.hosts import HostInstance
from postroom.message import Message
from postroom.messagebox.instances import InstanceQuery, InstanceState, list_instances
from postroom.messagebox.maintenance.check import check
from postroom.system_properties import BTS
from tests.integration.hosts.conftest import StartHost
from tests.support import changes
from tests.support.box import Box, Region
from tests.support.recording_adapter import RecordingAdapter, fail_always
from tests.support.waiting import wait_until

NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)


def order(body: bytes = b"an order") -> Message:
    return Message.of(body, promoted={Region: "EU"})


def at(moment: datetime) -> dict[str, object]:
    return {"clock": lambda: moment}


def postpone(box: Box, start_host: StartHost, window: Schedule, now: datetime = NOON) -> HostInstance:
    """Publish a message outside the window and wait until it is scheduled."""
    box.add_port("Europe", "Orders.Region == 'EU'", service_window=window)
    recorder = RecordingAdapter()
    instance = start_host(recorder, **at(now))
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["postponed"] == 1)
    assert recorder.attempts == []
    instance.stop()
    return instance


@pytest.mark.parametrize(
    ("window", "opens"),
    [
        (Schedule(window=("18:00", "20:00")), datetime(2026, 3, 4, 18, tzinfo=UTC)),
        (Schedule(window=("22:00", "06:00")), datetime(2026, 3, 4, 22, tzinfo=UTC)),
        (Schedule(window=("08:00", "10:00"), zone="America/New_York"), datetime(2026, 3, 4, 13, tzinfo=UTC)),
        (Schedule(weekdays=["thu"]), datetime(2026, 3, 5, tzinfo=UTC)),
    ],
    ids=["later today", "over midnight", "in a time zone", "another day"],
)
def test_a_message_is_scheduled_until_the_window_opens(
    box: Box, start_host: StartHost, window: Schedule, opens: datetime
) -> None:
    postpone(box, start_host, window)
    (instance,) = list_instances(box.connection, InstanceQuery())
    assert (instance.state, instance.attempt) == (InstanceState.SCHEDULED, 1)
    assert instance.retry_at == opens
    assert instance.error_code is None
    recorder = RecordingAdapter()
    too_early = start_host(recorder, **at(opens - timedelta(seconds=1)))
    box.agent().publish([order(b"another")])
    wait_until(lambda: too_early.counts["postponed"] == 1, what="another poll")
    too_early.stop()
    in_time = start_host(recorder, **at(opens))
    wait_until(lambda: in_time.counts["completed"] == 2)
    assert [sent.attempt.number for sent in recorder.sent] == [1, 1]
    assert check(box.connection) == []


def test_a_window_over_midnight_is_open_after_midnight(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'", service_window=Schedule(window=("22:00", "06:00")))
    recorder = RecordingAdapter()
    instance = start_host(recorder, **at(datetime(2026, 3, 5, 5, 59, tzinfo=UTC)))
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["completed"] == 1)


def test_a_retry_waits_for_the_window_without_losing_an_attempt(box: Box, start_host: StartHost) -> None:
    window = Schedule(window=("11:00", "13:00"))
    box.add_port("Europe", "Orders.Region == 'EU'", service_window=window, retry_count=2, retry_seconds=7200)
    recorder = RecordingAdapter(fail_always)
    first = start_host(recorder, **at(NOON))
    box.agent().publish([order()])
    wait_until(lambda: first.counts["retried"] == 1)
    first.stop()
    outside = start_host(recorder, **at(NOON + timedelta(hours=3)))
    wait_until(lambda: outside.counts["postponed"] == 1)
    (instance,) = list_instances(box.connection, InstanceQuery())
    assert (instance.state, instance.attempt) == (InstanceState.SCHEDULED, 2)
    assert instance.retry_at == datetime(2026, 3, 5, 11, tzinfo=UTC)
    outside.stop()
    recorder.behave = lambda message, attempt: None
    inside = start_host(recorder, **at(NOON + timedelta(days=1)))
    wait_until(lambda: inside.counts["completed"] == 1)
    assert [sent.attempt.number for sent in recorder.sent] == [2]


def test_the_backup_transport_has_its_own_window(box: Box, start_host: StartHost) -> None:
    backup = BackupTransport(adapters.Null(), retry=Retry(count=0), service_window=Schedule(window=("18:00", "20:00")))
    box.add_port("Europe", "Orders.Region == 'EU'", retry_count=0, backup=backup)

    def fail_on_primary(message: Message, attempt: Attempt) -> None:
        if message.context[BTS.OutboundTransportLocation] == "null://":
            raise DeliveryFailure("The receiver is down.")

    recorder = RecordingAdapter(fail_on_primary)
    instance = start_host(recorder, **at(NOON))
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["postponed"] == 1)
    assert len(recorder.attempts) == 1
    instance.stop()
    evening = start_host(recorder, **at(NOON + timedelta(hours=6)))
    wait_until(lambda: evening.counts["completed"] == 1)
    assert [sent.attempt.number for sent in recorder.sent] == [2]


def test_a_scheduled_instance_that_is_suspended_and_resumed_waits_to_retry(box: Box, start_host: StartHost) -> None:
    """INS-10."""
    tonight = (datetime.now(UTC) + timedelta(hours=3)).time().replace(microsecond=0)
    window = Schedule(window=(tonight, (datetime.combine(NOON, tonight) + timedelta(hours=1)).time()))
    postpone(box, start_host, window, datetime.now(UTC))
    (scheduled,) = list_instances(box.connection, InstanceQuery())
    assert changes.suspend_all(box.connection, InstanceQuery()) == 1
    assert changes.resume_all(box.connection, InstanceQuery()) == 1
    (resumed,) = list_instances(box.connection, InstanceQuery())
    assert (resumed.state, resumed.retry_at) == (InstanceState.RETRYING, scheduled.retry_at)
    assert check(box.connection) == []


def test_a_window_that_never_opens_again_suspends(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'", service_window=Schedule(stop="2026-01-31"))
    instance = start_host(RecordingAdapter(), **at(NOON))
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["suspended"] == 1)
    assert box.suspended() == [("SERVICE_WINDOW", True)]
    assert "until 2026-01-31" in box.read_error()
