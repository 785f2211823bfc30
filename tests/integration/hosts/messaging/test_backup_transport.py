"""A backup transport sends what the primary transport could not send after its retries (SND-05, 06; ACC-30)."""

from __future__ import annotations

from typing import Any

import pytest

from postroom import BackupTransport, Retry, adapters
from postroom.adapters import Attempt
from postroom.errors import DeliveryFailure, DeliveryRefused
from postroom.message import Message
from postroom.messagebox.instances import InstanceQuery, list_instances
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.queues import Cause
from postroom.system_properties import BTS
from tests.integration.hosts.conftest import StartHost
from tests.support import changes
from tests.support.box import Box, Region
from tests.support.recording_adapter import RecordedSend, RecordingAdapter, fail_always
from tests.support.waiting import wait_until

PRIMARY, BACKUP = "null://", "null://backup"


def order(body: bytes = b"an order") -> Message:
    return Message.of(body, promoted={Region: "EU"})


def backup(count: int = 0, interval: float = 0) -> BackupTransport:
    return BackupTransport(adapters.Null(), retry=Retry(count=count, interval=interval))


def add_port(box: Box, **settings: Any) -> None:
    box.add_port(
        "Europe", "Orders.Region == 'EU'", **{"retry_seconds": 0, "retry_count": 1, "backup": backup(), **settings}
    )


def get_address(sent: RecordedSend) -> str:
    return str(sent.message.context[BTS.OutboundTransportLocation])


def fail_on_primary(message: Message, attempt: Attempt) -> None:
    if message.context[BTS.OutboundTransportLocation] == PRIMARY:
        raise DeliveryFailure("The receiver is down.")


def test_the_backup_transport_is_used_after_the_retries_of_the_primary(box: Box, start_host: StartHost) -> None:
    add_port(box, retry_count=2)
    recorder = RecordingAdapter(fail_on_primary)
    instance = start_host(recorder)
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["completed"] == 1)
    assert [get_address(attempt) for attempt in recorder.attempts] == [PRIMARY] * 3 + [BACKUP]
    assert [attempt.attempt.number for attempt in recorder.attempts] == [1, 2, 3, 4]
    assert recorder.sent[0].message.context[BTS.OutboundTransportType] == "NULL"
    assert check(box.connection) == []


@pytest.mark.parametrize(("primary", "retries"), [(0, 0), (3, 0), (1, 2)])
def test_a_message_is_suspended_after_the_retries_of_both_transports(
    box: Box, start_host: StartHost, primary: int, retries: int
) -> None:
    add_port(box, retry_count=primary, backup=backup(retries))
    recorder = RecordingAdapter(fail_always)
    instance = start_host(recorder)
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["suspended"] == 1)
    assert [get_address(attempt) for attempt in recorder.attempts] == [PRIMARY] * (1 + primary) + [BACKUP] * (
        1 + retries
    )
    remaining = [*range(primary, -1, -1), *range(retries, -1, -1)]
    assert [attempt.message.context[BTS.RetryCount] for attempt in recorder.attempts] == remaining
    [row] = box.suspended_rows()
    assert (row.error_code, row.adapter, row.uri, row.resumable) == ("DELIVERY", "null", BACKUP, True)
    assert row.cause == Cause.FAILURE


def test_a_resumed_message_starts_with_the_primary_transport(box: Box, start_host: StartHost) -> None:
    add_port(box, retry_count=0)
    recorder = RecordingAdapter(fail_always)
    instance = start_host(recorder)
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["suspended"] == 1)
    changes.resume_all(box.connection, InstanceQuery())
    wait_until(lambda: instance.counts["suspended"] == 2)
    assert [get_address(attempt) for attempt in recorder.attempts] == [PRIMARY, BACKUP] * 2


def test_a_change_of_the_retries_leaves_waiting_messages_on_their_transport(box: Box, start_host: StartHost) -> None:
    add_port(box, retry_count=2, backup=backup(1, 3600))
    recorder = RecordingAdapter(fail_always)
    instance = start_host(recorder)
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["retried"] == 4)
    (waiting,) = list_instances(box.connection, InstanceQuery())
    assert (waiting.attempt, waiting.on_backup) == (5, True)
    instance.stop()
    box.set_ports(retry={"count": 9, "interval": 0})
    box.make_due()
    again = start_host(recorder)
    wait_until(lambda: again.counts["suspended"] == 1)
    assert get_address(recorder.attempts[-1]) == BACKUP
    assert len(recorder.attempts) == 5


def test_the_primary_transport_sends_if_the_backup_was_removed(box: Box, start_host: StartHost) -> None:
    add_port(box, retry_count=0, backup=backup(5, 3600))
    recorder = RecordingAdapter(fail_always)
    instance = start_host(recorder)
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["retried"] == 2)
    instance.stop()
    box.set_ports(backup=None, backup_uri=None)
    box.make_due()
    again = start_host(recorder)
    wait_until(lambda: again.counts["suspended"] == 1)
    assert [get_address(attempt) for attempt in recorder.attempts] == [PRIMARY, BACKUP, PRIMARY]


def test_a_refused_message_does_not_go_to_the_backup_transport(box: Box, start_host: StartHost) -> None:
    add_port(box)

    def refuse(message: Message, attempt: Attempt) -> None:
        raise DeliveryRefused("It does not fit.")

    recorder = RecordingAdapter(refuse)
    instance = start_host(recorder)
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["suspended"] == 1)
    assert [get_address(attempt) for attempt in recorder.attempts] == [PRIMARY]


def test_each_transport_has_its_own_adapter(box: Box, start_host: StartHost) -> None:
    add_port(box, retry_count=0)
    recorder = RecordingAdapter(fail_on_primary)
    instance = start_host(recorder)
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["completed"] == 1)
    assert recorder.opened == 2
    instance.stop()
    assert recorder.closed == 2
