"""A host process for tests that kill it: python -m tests.support.failing_host URL HOST HOME.

Its first attempts fail; from then on one never ends, so that it does not come to the end of its work.
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
from tests.support.senders import Recorder, always_fails

_FAILS = 200


def main(url: str, host: str, home: str) -> None:
    numbers = itertools.count()

    def fails_and_then_hangs(message: Message, attempt: Attempt) -> None:
        if next(numbers) >= _FAILS:
            threading.Event().wait()
        always_fails(message, attempt)

    settings = HostSettings(runs_jobs=False, memory_queue=50, stop_within=timedelta(seconds=0.1))
    run_host(url, host, Path(home), as_role=True, build_adapter=Recorder(fails_and_then_hangs).build, settings=settings)


if __name__ == "__main__":
    main(*sys.argv[1:])
