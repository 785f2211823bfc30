"""A running host instance takes changes of the configuration within a second (ORS-10)."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest

from postroom import Application
from postroom.errors import BadValue, NotFound
from postroom.messagebox.coordination.running_processes import read_routing_version
from postroom.operations.hosts import list_service_classes, set_service_class
from tests.integration.hosts.conftest import StartHost
from tests.integration.hosts.messaging.test_failed_message_routing import order
from tests.support.box import Box
from tests.support.deployment import deploy
from tests.support.orchestrations import ECHO, apply_orchestrations, publish
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import PATIENCE, wait_until

MESSAGING = "messaging_in_process"


def count_threads(service_class: str = MESSAGING) -> int:
    return sum(thread.name.startswith(f"{service_class} ") for thread in threading.enumerate())


def is_taken(box: Box) -> bool:
    version = read_routing_version(box.connection)
    return all(one.routing_version == version for one in box.host_instances())


@pytest.mark.parametrize("threads", [2, 9])
def test_a_running_host_changes_its_number_of_threads(box: Box, start_host: StartHost, threads: int) -> None:
    box.add_port("Web", "Orders.Region == 'EU'")
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    wait_until(lambda: count_threads() == 5)
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["completed"] == 1)
    set_service_class(box.connection, MESSAGING, polling_interval=None, dequeue_threads=threads)
    wait_until(lambda: count_threads() == threads)
    box.agent().publish([order()])
    wait_until(lambda: instance.counts["completed"] == 2)
    assert len(recorder.sent) == 2


@pytest.mark.parametrize("threads", [2, 9])
def test_a_running_host_changes_its_number_of_threads_for_orchestrations(
    box: Box, tmp_path: Path, start_host: StartHost, threads: int
) -> None:
    apply_orchestrations(box, tmp_path, ECHO)
    recorder = RecordingAdapter()
    start_host(recorder)
    wait_until(lambda: count_threads("orchestrations") == 5)
    set_service_class(box.connection, "orchestrations", dequeue_threads=threads)
    wait_until(lambda: count_threads("orchestrations") == threads)
    publish(box, "order", "1")
    wait_until(lambda: [one.body for one in recorder.sent] == [b"echo 1"])


def test_a_host_takes_the_number_of_threads_that_an_application_declares(
    box: Box, tmp_path: Path, start_host: StartHost
) -> None:
    """DEQ-01."""
    start_host(RecordingAdapter())
    wait_until(lambda: count_threads() == count_threads("orchestrations") == 5)
    set_service_class(box.connection, MESSAGING, dequeue_threads=6)
    for threads, messaging, orchestrations in ((3, 3, 3), (8, 8, 8), (None, 6, 5)):
        app = Application("busy")
        app.host("Default", threads=threads)
        deploy(box.connection, app)
        expected = (messaging, orchestrations)
        wait_until(lambda expected=expected: (count_threads(), count_threads("orchestrations")) == expected)  # type: ignore[misc]


def test_a_message_in_progress_is_finished_while_other_threads_end(box: Box, start_host: StartHost) -> None:
    box.add_port("Web", "Orders.Region == 'EU'")
    entered, leave = threading.Event(), threading.Event()

    def wait(*_: object) -> None:
        entered.set()
        leave.wait()

    recorder = RecordingAdapter(wait)
    instance = start_host(recorder)
    box.agent().publish([order()])
    entered.wait()
    set_service_class(box.connection, MESSAGING, polling_interval=timedelta(seconds=1), dequeue_threads=2)
    wait_until(lambda: count_threads() == 2)
    assert instance.counts["completed"] == 0
    leave.set()
    wait_until(lambda: instance.counts["completed"] == 1)
    assert count_threads() == 2
    assert len(recorder.attempts) == 1


def test_a_change_is_taken_when_its_notification_arrives(
    box: Box, start_host: StartHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom.hosts.configuration_watch._APPLY_SECONDS", 2.0 * PATIENCE)
    start_host(RecordingAdapter())
    wait_until(lambda: is_taken(box))
    box.connection.execute("SELECT change_routing()")
    wait_until(lambda: is_taken(box))


def test_a_change_during_a_lost_connection_is_taken_afterwards(box: Box, start_host: StartHost) -> None:
    instance = start_host(RecordingAdapter())
    wait_until(lambda: is_taken(box))
    box.connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'postroom host%%'"
        " AND datname = current_database()"
    )
    box.connection.execute("SELECT change_routing()")
    wait_until(lambda: instance.registration.regained_locks == 1)
    wait_until(lambda: is_taken(box))


def test_wrong_settings_are_refused(box: Box) -> None:
    with pytest.raises(NotFound, match="no service class 'messaging'"):
        set_service_class(box.connection, "messaging", polling_interval=None, dequeue_threads=1)
    for threads in (0, 101):
        with pytest.raises(BadValue, match="1 to 100"):
            set_service_class(box.connection, MESSAGING, polling_interval=None, dequeue_threads=threads)
    with pytest.raises(BadValue, match="at most 60 seconds"):
        set_service_class(box.connection, MESSAGING, polling_interval=timedelta(), dequeue_threads=None)
    threads_now = {listed.name: listed.dequeue_threads for listed in list_service_classes(box.connection)}
    assert threads_now[MESSAGING] == 5
