"""A host process whose attempts fail, for tests that kill it: python -m tests.support.failing_host URL HOST HOME."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

from postroom.hosts import HostSettings, run_host
from tests.support.senders import Recorder, always_fails


def main(url: str, host: str, home: str) -> None:
    settings = HostSettings(runs_jobs=False, memory_queue=50, stop_within=timedelta(seconds=0.1))
    run_host(url, host, Path(home), as_role=True, build_adapter=Recorder(always_fails).build, settings=settings)


if __name__ == "__main__":
    main(*sys.argv[1:])
