"""An operator lets a send port attempt its waiting messages now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from postroom.application import CircuitBreaker
from postroom.messagebox.audit import list_audit
from postroom.operations.ports.send_ports import Retried, retry
from tests.integration.hosts.conftest import StartHost
from tests.integration.hosts.messaging.test_circuit_breaker import Receiver, count_paused, publish
from tests.support.box import Box
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until


def test_waiting_messages_of_the_port_are_attempted_now(box: Box, start_host: StartHost) -> None:
    for name in ("Europe", "Other"):
        box.add_port(name, "Orders.Region == 'EU'", retry_count=3, retry_seconds=86_400)
    receiver = Receiver()
    instance = start_host(RecordingAdapter(receiver))
    publish(box, 5)
    wait_until(lambda: instance.counts["retried"] == 10)
    receiver.is_down = False
    assert retry(box.connection, "Europe") == Retried(name="Europe", retried=5, is_probed=False)
    wait_until(lambda: instance.counts["completed"] == 5)
    later = datetime.now(UTC) + timedelta(hours=1)
    assert [row.valid_from is not None and row.valid_from > later for row in box.scheduled_rows()] == [True] * 5
    [entry] = list_audit(box.connection, action="port.retry")
    assert (entry.target, entry.before, entry.after) == ("Europe", {"retrying": 5}, {"ready to run": 5})
    assert retry(box.connection, "Europe").retried == 0


def test_a_paused_port_sends_a_probe_now(box: Box, start_host: StartHost) -> None:
    breaker = CircuitBreaker(failures=3, period=0, probe_interval=3600)
    box.add_port("Europe", "Orders.Region == 'EU'", retry_count=3, retry_seconds=0, circuit_breaker=breaker)
    receiver = Receiver()
    instance = start_host(RecordingAdapter(receiver))
    publish(box, 20)
    wait_until(lambda: count_paused(box) == 20)
    receiver.is_down = False
    assert retry(box.connection, "Europe").is_probed
    wait_until(lambda: instance.counts["completed"] == 20)
