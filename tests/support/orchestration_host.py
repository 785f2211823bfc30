"""A host process for tests that kill it: python -m tests.support.orchestration_host URL HOST HOME [SECONDS].

It ends if a call keeps the interpreter lock for SECONDS.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

from postroom.hosts import HostSettings, run_host


def start_orchestration_host(stack: ExitStack, url: str, home: Path) -> subprocess.Popen[bytes]:
    """Start this module in a process of its own, which is killed at the end of the block."""
    command = [sys.executable, "-m", "tests.support.orchestration_host", url, "Default", str(home)]
    process = stack.enter_context(subprocess.Popen(command))
    stack.callback(process.kill)
    return process


def main(url: str, host: str, home: str, blocked_limit: str = "60") -> None:
    settings = HostSettings(stop_within=timedelta(seconds=1), blocked_limit=timedelta(seconds=float(blocked_limit)))
    run_host(url, host, Path(home), as_role=True, settings=settings)


if __name__ == "__main__":
    main(*sys.argv[1:])
