"""A signal ends `make up` and the program that it runs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE, wait_until

MAKEFILE = Path(__file__).parents[2] / "Makefile"

#: Replaces Python. Creates the file `ended` when it receives SIGTERM.
PROGRAM = """#!/bin/sh
[ "$1" = -c ] && exit 0
trap 'touch ended; exit 0' TERM
touch started
while :; do sleep 0.05; done
"""


@pytest.mark.parametrize("target", ["up", "demo"])
def test_a_signal_to_make_is_passed_on_to_the_program(tmp_path: Path, target: str) -> None:
    shutil.copy(MAKEFILE, tmp_path)
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PROGRAM)
    python.chmod(0o755)
    (tmp_path / ".venv" / ".installed").write_text(str(tmp_path))
    make = subprocess.Popen(["make", target], cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_until((tmp_path / "started").exists, what="the program")
        make.send_signal(signal.SIGTERM)
        wait_until((tmp_path / "ended").exists, what="the end of the program")
        make.wait(PATIENCE)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(make.pid, signal.SIGKILL)
        make.wait()
