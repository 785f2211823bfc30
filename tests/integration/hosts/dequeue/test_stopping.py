"""A host that stops finishes the messages in progress and releases the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import tests
from postroom.hosts import HostSettings, run_host
from postroom.message import Message
from postroom.messagebox.maintenance.check import check
from tests.integration.hosts.conftest import SETTINGS, StartHost
from tests.support.box import Box, Region
from tests.support.recording_adapter import BlockedSend, RecordingAdapter
from tests.support.waiting import PATIENCE, wait_until


def orders(count: int) -> list[Message]:
    return [Message.of(str(number).encode(), promoted={Region: "EU"}) for number in range(count)]


def test_stop_finishes_messages_in_progress_and_releases_the_others(box: Box, start_host: StartHost) -> None:
    """HST-09."""
    box.add_port("Europe", "Orders.Region == 'EU'")
    blocked = BlockedSend()
    recorder = RecordingAdapter(blocked)
    instance = start_host(recorder)
    box.agent().publish(orders(50))
    wait_until(lambda: len(recorder.attempts) == 5)
    stopping = threading.Thread(target=instance.stop)
    stopping.start()
    # The messages that no thread has taken are dropped with the same step.
    wait_until(lambda: instance.messaging._buffer._paused, what="the buffer to be paused")
    blocked.released.set()
    stopping.join(PATIENCE)
    assert not stopping.is_alive()
    assert len(recorder.sent) == 5
    assert box.count("unclaimed") == 45
    assert box.count("queued") == 45
    assert recorder.closed == 1, "the adapter was closed"
    assert check(box.connection) == []


def test_stop_gives_up_after_the_timeout(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    blocked = BlockedSend()
    recorder = RecordingAdapter(blocked)
    settings = HostSettings(runs_jobs=False, stop_within=timedelta(milliseconds=50))
    instance = start_host(recorder, settings=settings)
    box.agent().publish(orders(1))
    wait_until(lambda: recorder.attempts)
    instance.stop()
    assert box.count("unclaimed") == 1, "another instance can claim it"
    blocked.released.set()


def test_run_host_runs_until_the_event_is_set(box: Box, tmp_path: Path) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    recorder, stop = RecordingAdapter(), threading.Event()
    arguments = {"as_role": True, "build_adapter": recorder.build, "settings": SETTINGS, "stop": stop}
    running = threading.Thread(target=run_host, args=(box.url, "default", tmp_path), kwargs=arguments)
    running.start()
    box.agent().publish(orders(3))
    wait_until(lambda: box.count("queued") == 0)
    stop.set()
    running.join(PATIENCE)
    assert not running.is_alive()
    assert len(recorder.sent) == 3
    assert box.count("host instances") == 0


def test_a_process_stops_at_a_signal(box: Box, tmp_path: Path) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.agent().publish(orders(10))
    command = [sys.executable, "-m", "tests.support.blocked_host", box.url, "Default", str(tmp_path)]
    with subprocess.Popen(command, cwd=Path(tests.__path__[0]).parent) as process:
        wait_until(lambda: box.count("claimed") == 10)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert box.count("host instances") == 0
    assert box.count("unclaimed") == 10
