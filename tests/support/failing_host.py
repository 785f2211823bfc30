"""A host process for tests that kill it: python -m tests.support.failing_host URL HOST HOME.

Its first attempts fail. All later attempts block, so the host never finishes its work.
"""

from __future__ import annotations

import itertools
import sys
import threading
from datetime import timedelta
from pathlib import Path

from postroom.adapters import Attempt
from postroom.hosts import HostSettings, run_host
from postroom.message import Message
from tests.support.recording_adapter import RecordingAdapter, fail_always

_FAILURES = 200


def main(url: str, host: str, home: str) -> None:
    numbers = itertools.count()

    def fail_and_then_block(message: Message, attempt: Attempt) -> None:
        if next(numbers) >= _FAILURES:
            threading.Event().wait()
        fail_always(message, attempt)

    settings = HostSettings(runs_jobs=False, memory_queue=50, stop_within=timedelta(seconds=0.1))
    run_host(
        url,
        host,
        Path(home),
        as_role=True,
        build_adapter=RecordingAdapter(fail_and_then_block).build,
        settings=settings,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
