"""Frozen processes are killed, and others are not."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from postroom.processes.frozen_processes import FrozenProcesses, kill_frozen_children
from tests.support.waiting import wait_until

_SLEEP = [sys.executable, "-c", "import time; time.sleep(3600)"]


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(_SLEEP) as process:
        yield process
        process.kill()


def test_a_frozen_process_is_killed(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSTOP)
    frozen = FrozenProcesses(after=0.01)
    assert wait_until(lambda: frozen.kill([process.pid])) == [process.pid]
    assert process.wait() == -signal.SIGKILL


def test_a_process_that_continues_in_time_is_not_killed(process: subprocess.Popen[bytes]) -> None:
    frozen = FrozenProcesses(after=3600)
    process.send_signal(signal.SIGSTOP)
    assert frozen.kill([process.pid]) == []
    process.send_signal(signal.SIGCONT)
    assert FrozenProcesses(after=0).kill([process.pid]) == []
    assert process.poll() is None


def test_a_process_that_has_ended_is_ignored() -> None:
    process = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    assert FrozenProcesses(after=0).kill([int(process.stdout)]) == []


def test_frozen_descendants_are_killed(process: subprocess.Popen[bytes]) -> None:
    with kill_frozen_children(after=0.01):
        process.send_signal(signal.SIGSTOP)
        assert process.wait() == -signal.SIGKILL
