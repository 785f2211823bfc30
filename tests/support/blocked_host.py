"""A host process with attempts that never end, for tests that kill it.

python -m tests.support.blocked_host URL HOST HOME
"""

from __future__ import annotations

import sys
import threading
from datetime import timedelta
from pathlib import Path

from postroom.adapters import Attempt
from postroom.hosts import HostSettings, run_host
from postroom.message import Message
from tests.support.recording_adapter import RecordingAdapter


def main(url: str, host: str, home: str) -> None:
    def block(message: Message, attempt: Attempt) -> None:
        threading.Event().wait()

    settings = HostSettings(runs_jobs=False, memory_queue=20, stop_within=timedelta(seconds=0.1))
    run_host(url, host, Path(home), as_role=True, build_adapter=RecordingAdapter(block).build, settings=settings)


if __name__ == "__main__":
    main(*sys.argv[1:])
