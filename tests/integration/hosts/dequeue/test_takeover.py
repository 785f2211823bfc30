"""Claimed messages of a host instance that dies or loses its lock (DEQ-14, ACC-33)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import tests
from postroom.adapters import Attempt
from postroom.message import Message
from postroom.messagebox.connection import connect
from postroom.messagebox.coordination.notifications import wake_up_channel
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from tests.integration.hosts.conftest import SETTINGS, StartHost
from tests.support.box import Box, Region
from tests.support.recording_adapter import BlockedSend, RecordingAdapter
from tests.support.waiting import PATIENCE, wait_until

_LAST_STATEMENT = """
    SELECT a.query_start FROM pg_stat_activity a JOIN pg_locks l USING (pid)
     WHERE l.classid = 7002 AND l.granted AND l.objid = %s AND a.datname = current_database()
"""
_DETECT_DEAD_INSTANCES = "SELECT dead_processes_cleanup('1 s', clock_timestamp() + %s::interval)"


def orders(count: int) -> list[Message]:
    return [Message.of(str(number).encode(), promoted={Region: "EU"}) for number in range(count)]


def detect_dead_instances(box: Box) -> int:
    """Run the job that detects dead instances twice, with a time one minute after the start of the server.

    Return the number of released messages.
    """
    box.one(_DETECT_DEAD_INSTANCES, "60 s")
    return int(box.one(_DETECT_DEAD_INSTANCES, "61.5 s"))


def count_claimed(box: Box) -> int:
    return int(box.count("claimed"))


def count_locks(box: Box, host_instance: int | None = None) -> int:
    return int(
        box.one(
            "SELECT count(*) FROM pg_locks l"
            " JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()"
            " WHERE l.classid = 7002 AND l.granted AND l.objid = coalesce(%s, l.objid)",
            host_instance,
        )
    )


def complete_as_another(box: Box) -> None:
    """Take over the claims of an instance and complete the messages."""
    claim = uuid.uuid4()
    box.claim_all(claim, claimed_by=0)
    seqs = [row.seq for row in box.queued_rows()]
    box.connection.execute("SELECT complete_messages_default(%s, %s)", (claim, seqs))


def end_lock_connection(box: Box, host_instance: int) -> None:
    assert box.one(
        "SELECT pg_terminate_backend(l.pid, 5000) FROM pg_locks l"
        " JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()"
        " WHERE l.classid = 7002 AND l.objid = %s AND l.granted",
        host_instance,
    )


@contextmanager
def start_blocked_process(box: Box, home: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.support.blocked_host", box.url, "Default", str(home)]
    process = subprocess.Popen(command, cwd=Path(tests.__path__[0]).parent)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_another_instance_takes_over_the_claims_of_a_killed_process(
    box: Box, start_host: StartHost, tmp_path: Path
) -> None:
    """HST-01, SND-21."""
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.agent().publish(orders(20))
    with start_blocked_process(box, tmp_path) as process:
        wait_until(lambda: count_claimed(box) == 20)
        recorder = RecordingAdapter()
        instance = start_host(recorder)
        assert detect_dead_instances(box) == 0, "the process is alive"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    wait_until(lambda: count_locks(box) == 1)
    assert box.count("host instances") == 2
    assert detect_dead_instances(box) == 20
    assert box.count("host instances") == 1
    wait_until(lambda: instance.counts["completed"] == 20)
    assert Counter(recorder.bodies) == Counter(str(number).encode() for number in range(20))
    run_all_jobs_once(box.connection)
    assert box.count("messages") == 0
    assert check(box.connection) == []


def test_the_messages_of_a_frozen_process_go_to_another_host_instance(
    box: Box, start_host: StartHost, tmp_path: Path
) -> None:
    """The connections of a frozen process stay open, but its heartbeats end."""
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.agent().publish(orders(20))
    with start_blocked_process(box, tmp_path) as process:
        wait_until(lambda: count_claimed(box) == 20)
        os.kill(process.pid, signal.SIGSTOP)
        recorder = RecordingAdapter()
        instance = start_host(recorder, settings=replace(SETTINGS, runs_jobs=True))
        wait_until(lambda: instance.counts["completed"] == 20)
        assert Counter(recorder.bodies) == Counter(str(number).encode() for number in range(20))
        os.kill(process.pid, signal.SIGCONT)
        wait_until(lambda: count_locks(box) == 2, what="the instance to have its lock again")
        assert count_claimed(box) == 0


def test_a_host_that_is_woken_all_the_time_sends_its_heartbeats(box: Box, start_host: StartHost) -> None:
    """PostgreSQL ends the session of the lock after 8 s without a statement, and wake-ups are no statements."""
    instance = start_host(RecordingAdapter(), settings=replace(SETTINGS, heartbeat=timedelta(seconds=0.2)))
    first = box.one(_LAST_STATEMENT, instance.host_instance)
    channel = wake_up_channel("Default")

    def wake_and_read() -> bool:
        box.connection.execute(f"NOTIFY {channel}")
        return bool(box.one(_LAST_STATEMENT, instance.host_instance) > first)

    wait_until(wake_and_read, what="a heartbeat")


def test_an_instance_is_not_dead_before_the_end_of_the_grace_period(box: Box) -> None:
    box.add_host_instance("gone")
    for moment in ("60 s", "60.9 s"):
        box.one(_DETECT_DEAD_INSTANCES, moment)
        assert box.count("host instances") == 1
    box.one(_DETECT_DEAD_INSTANCES, "61.5 s")
    assert box.count("host instances") == 0


def test_a_dead_instance_is_detected_after_the_clock_was_set_back(box: Box) -> None:
    box.add_host_instance("gone")
    box.one(_DETECT_DEAD_INSTANCES, "1 h")
    box.one(_DETECT_DEAD_INSTANCES, "60 s")
    assert box.count("host instances") == 1, "the grace period starts again"
    box.one(_DETECT_DEAD_INSTANCES, "61.5 s")
    assert box.count("host instances") == 0


def test_the_grace_period_is_not_longer_before_a_server_start(box: Box) -> None:
    """The clock was set back since the start of the server."""
    box.add_host_instance("gone")
    for moment in ("-3600 s", "-3598 s"):
        box.one("SELECT dead_processes_cleanup('1 s', pg_postmaster_start_time() + %s::interval)", moment)
    assert box.count("host instances") == 0


def test_the_grace_period_is_longer_after_a_server_start(box: Box) -> None:
    box.add_host_instance("not back yet")
    run_job = "SELECT dead_processes_cleanup('1 s', pg_postmaster_start_time() + %s::interval)"
    for moment in ("1 s", "5 s", "10.9 s"):
        box.one(run_job, moment)
        assert box.count("host instances") == 1
    box.one(run_job, "11.1 s")
    assert box.count("host instances") == 0


def test_the_claims_of_an_unregistered_instance_are_released(box: Box) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.agent().publish(orders(3))
    box.connection.execute("SELECT dequeue_messages_default(gen_random_uuid(), 4711, 'messaging_in_process', 2)")
    assert [violation.invariant for violation in check(box.connection)] == ["claims_of_dead_instances"]
    assert box.one("SELECT dead_processes_cleanup()") == 2
    assert check(box.connection) == []


def test_hosts_are_woken_when_the_claims_of_a_dead_instance_are_released(box: Box) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.agent().publish(orders(3))
    box.connection.execute("SELECT dequeue_messages_default(gen_random_uuid(), 4711, 'messaging_in_process', 3)")
    channel = wake_up_channel("Default")
    with connect(box.url) as listener:
        listener.execute(f"LISTEN {channel}")
        box.one("SELECT dead_processes_cleanup()")
        [notification] = listener.notifies(timeout=PATIENCE, stop_after=1)
        assert notification.channel == channel


def test_an_outcome_whose_claim_was_taken_over_is_discarded(box: Box, start_host: StartHost) -> None:
    """Fencing: both instances have sent the message, but only the owner of the claim can store an outcome."""
    box.add_port("Europe", "Orders.Region == 'EU'")
    blocked = BlockedSend()
    late = RecordingAdapter(blocked)
    slow = start_host(late)
    box.agent().publish(orders(5))
    wait_until(lambda: len(late.attempts) == 5)
    complete_as_another(box)
    blocked.released.set()
    wait_until(lambda: slow.counts["discarded"] == 5)
    assert slow.counts["completed"] == 0
    run_all_jobs_once(box.connection)
    assert box.count("messages") == 0
    assert check(box.connection) == [], "no claim was released twice"


def test_a_body_cannot_be_read_by_a_claim_that_was_taken_over(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    blocked = BlockedSend()
    read: list[bytes] = []

    class LateReader(RecordingAdapter):
        def send(self, message: Message, attempt: Attempt) -> None:
            self.opened += 1
            blocked(message, attempt)
            assert message.body is not None
            read.append(message.body.data)

    late = LateReader()
    slow = start_host(late)
    box.agent().publish([Message.of(b"x" * 300_000, promoted={Region: "EU"})])
    wait_until(lambda: late.opened == 2)
    complete_as_another(box)
    blocked.released.set()
    wait_until(lambda: slow.counts["discarded"] == 1)
    assert read == []


def test_an_instance_without_its_lock_starts_no_message_until_it_has_the_lock_again(
    box: Box, start_host: StartHost
) -> None:
    """Five messages are in progress when the lock is lost. They finish. The others are released and claimed again."""
    box.add_port("Europe", "Orders.Region == 'EU'")
    blocked = BlockedSend()
    recorder = RecordingAdapter(blocked)
    instance = start_host(recorder)
    number = instance.host_instance
    box.agent().publish(orders(50))
    wait_until(lambda: len(recorder.attempts) == 5)
    end_lock_connection(box, number)
    wait_until(lambda: instance.registration.regained_locks == 1)
    assert instance.host_instance == number
    assert [(one.id, one.dead_since) for one in box.host_instances()] == [(number, None)]
    assert count_locks(box, number) == 1
    blocked.released.set()
    wait_until(lambda: instance.counts["completed"] == 50)
    handled = Counter(attempt.attempt.instance_id for attempt in recorder.attempts)
    assert len(handled) == 50
    assert set(handled.values()) == {1}
    assert instance.counts["discarded"] == 0


def test_an_instance_starts_no_message_until_it_is_registered_again(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    blocked = BlockedSend()
    recorder = RecordingAdapter(blocked)
    lost = start_host(recorder)
    box.agent().publish(orders(50))
    wait_until(lambda: len(recorder.attempts) == 5)
    with box.connection.transaction():
        box.lock("host instances", "SHARE ROW EXCLUSIVE")  # blocks the registration
        end_lock_connection(box, lost.host_instance)
        wait_until(
            lambda: count_locks(box, lost.host_instance) == 1,
            what="the lock",
        )
        blocked.released.set()
        wait_until(lambda: lost.counts["completed"] == 5, what="the messages in progress")
        assert len(recorder.attempts) == 5, "no other attempt is started"
    wait_until(lambda: lost.counts["completed"] == 50)
    handled = Counter(attempt.attempt.instance_id for attempt in recorder.attempts)
    assert len(handled) == 50
    assert set(handled.values()) == {1}


def test_an_instance_that_was_removed_as_dead_registers_again_with_its_number(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    number = instance.host_instance
    box.delete_all("host instances")
    end_lock_connection(box, number)
    wait_until(lambda: instance.registration.regained_locks == 1)
    assert [one.id for one in box.host_instances()] == [number]
    box.agent().publish(orders(5))
    wait_until(lambda: instance.counts["completed"] == 5)
    assert check(box.connection) == []


def test_no_message_is_lost_if_all_connections_break(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    agent = box.agent()
    for _ in range(5):
        agent.publish(orders(40))
        box.connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE 'postroom host%'"
        )
    wait_until(lambda: box.count("queued") == 0)
    assert len({message.message.message_id for message in recorder.sent}) == 200
    assert box.count("instances") == 0, "no message is suspended and no attempt has failed"
    wait_until(lambda: instance.registration.regained_locks > 0)
    run_all_jobs_once(box.connection)
    assert box.count("messages") == 0
    assert check(box.connection) == []
