"""A worker whose interpreter hangs is killed, and one with too many abandoned threads is replaced. The garbage
collector skips what a worker keeps."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from postroom.errors import Unavailable
from postroom.spark import worker

BEGIN = """
import re, time
from postroom.spark.worker import kill_if_frozen

def keep(letters):  # each letter more takes twice as long
    re.match(r'(a+)+$', 'a' * letters + 'b')

"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BEGIN + code]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_catastrophic_backtracking_kills_the_process() -> None:
    ended = run("with kill_if_frozen(1.0): keep(60)")
    assert ended.returncode == -signal.SIGALRM
    assert "in keep" in ended.stderr, "the log shows the stack"


@pytest.mark.parametrize(
    "work", ["time.sleep(1.5)", "end = time.monotonic() + 1.5\n    while time.monotonic() < end: ..."]
)
def test_slow_code_that_releases_the_interpreter_is_not_killed(work: str) -> None:
    assert run(f"with kill_if_frozen(1.0):\n    {work}").returncode == 0


def test_the_guard_ends_with_the_block() -> None:
    """The next task of the worker may not be guarded."""
    code = """
with kill_if_frozen(0.5):
    pass
began, letters = time.monotonic(), 16
while time.monotonic() - began < 1.0:
    began, letters = time.monotonic(), letters + 1
    keep(letters)
"""
    assert run(code).returncode == 0


def test_a_worker_with_too_many_abandoned_threads_fails_its_next_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "count_abandoned_threads", lambda: worker.MAX_LEAKED_THREADS)
    worker.fail_if_threads_leaked()
    monkeypatch.setattr(worker, "count_abandoned_threads", lambda: worker.MAX_LEAKED_THREADS + 1)
    with pytest.raises(Unavailable, match="9 abandoned threads"):
        worker.fail_if_threads_leaked()


def test_the_modules_of_a_worker_are_frozen_once() -> None:
    code = """
import gc
from postroom.spark.worker import freeze_modules
freeze_modules()
frozen = gc.get_freeze_count()
kept = [[] for _ in range(1000)]
freeze_modules()
assert 0 < gc.get_freeze_count() <= frozen, gc.get_freeze_count()
"""
    assert run(code).returncode == 0
