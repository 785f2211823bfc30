"""Takeover: from kill -9 of a host instance until another instance has delivered the messages that it had claimed.

    python -m bench.takeover

The killed instance has claimed all messages, and its adapter never returns. The other instance has default settings. It
is started for each kill, and the kill comes at a random moment after that, because its jobs run at fixed intervals.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
import uuid
from collections.abc import Callable

from bench.delivery_rounds import add_ports, fill_queue
from bench.host import host_process
from bench.messagebox import MeasuredBox, measured_box
from bench.ratios import Result
from postroom.hosts import HostInstance

_KILLS = 20
_MESSAGES = 50
_PATIENCE_SECONDS = 60.0
#: For this time after the start of PostgreSQL, host instances get more time to reconnect.
_SERVER_START_SECONDS = 15.0
_HANGING_HOST = """
import sys, threading
from pathlib import Path
from postroom.adapters.null import NullSender
from postroom.hosts import run_host
class Hanging(NullSender):
    def send(self, message, attempt):
        threading.Event().wait()
run_host(*sys.argv[1:3], Path(sys.argv[3]), as_role=True, build_adapter=lambda definition, home: Hanging())
"""


def measure() -> Result:
    """Return the median time in seconds."""
    rng = random.Random(7)
    with measured_box() as box:
        ports = add_ports(box)
        time.sleep(_SERVER_START_SECONDS)
        times = [_measure_takeover(box, ports, wait=rng.uniform(0.5, 2.5)) for _ in range(_KILLS)]
    return Result(
        name=f"takeover: from kill -9 of a host instance until another has delivered the {_MESSAGES} messages that it"
        f" had claimed, in seconds, median of {_KILLS}",
        group="D",
        measured=statistics.median(times),
        bar=2,
        at_most=True,
        spread=(min(times), max(times)),
        detail="default settings; the other instance runs already",
    )


def _measure_takeover(box: MeasuredBox, ports: list[uuid.UUID], *, wait: float) -> float:
    box.empty()
    with host_process(box, box.host.name, _HANGING_HOST) as hanging:
        fill_queue(box, ports, _MESSAGES)
        _wait_for(lambda: box.one("SELECT count(*) FROM work_queue WHERE claim_id IS NOT NULL") == _MESSAGES)
        with HostInstance(box.url, box.host.name, box.home, as_role=True) as other:
            time.sleep(wait)
            hanging.kill()
            killed = time.perf_counter()
            _wait_for(lambda: other.counts["completed"] == _MESSAGES)
            return time.perf_counter() - killed


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("The messages were not claimed or delivered in time.")
        time.sleep(0.005)


if __name__ == "__main__":
    sys.stdout.write(f"{measure()}\n")
