"""A worker whose interpreter does not come back is ended from outside, and one that only takes long is not."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

BEGIN = "import re, time; from postroom.spark.heartbeat import end_if_silent; end_if_silent(1.0); "


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BEGIN + code]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_regular_expression_that_goes_back_for_ever_ends_its_process() -> None:
    ended = run("re.match(r'(a+)+$', 'a' * 60 + 'b')")
    assert ended.returncode == -signal.SIGALRM
    assert "re.match" in ended.stderr or 'File "<string>", line 1' in ended.stderr, "where it was is in the log"


@pytest.mark.parametrize(
    "work", ["time.sleep(2.5)", "\nend = time.monotonic() + 2.5\nwhile time.monotonic() < end: ..."]
)
def test_what_lets_others_run_may_take_its_time(work: str) -> None:
    assert run(work).returncode == 0
