"""A worker whose interpreter does not come back is ended from outside, and one that only takes long is not."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

BEGIN = """
import re, time
from postroom.spark.heartbeat import ended_if_silent

def keep(letters):  # each letter more takes twice as long
    re.match(r'(a+)+$', 'a' * letters + 'b')

"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BEGIN + code]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_regular_expression_that_goes_back_for_ever_ends_its_process() -> None:
    ended = run("with ended_if_silent(1.0): keep(60)")
    assert ended.returncode == -signal.SIGALRM
    assert "in keep" in ended.stderr, "where it was is in the log"


@pytest.mark.parametrize(
    "work", ["time.sleep(2.5)", "end = time.monotonic() + 2.5\n    while time.monotonic() < end: ..."]
)
def test_what_lets_others_run_may_take_its_time(work: str) -> None:
    assert run(f"with ended_if_silent(1.0):\n    {work}").returncode == 0


def test_what_comes_after_it_may_be_silent() -> None:
    """The worker's next task is somebody else's."""
    code = """
with ended_if_silent(0.5):
    pass
began, letters = time.monotonic(), 16
while time.monotonic() - began < 1.0:
    began, letters = time.monotonic(), letters + 1
    keep(letters)
"""
    assert run(code).returncode == 0
