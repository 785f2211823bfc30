"""A convoy of many messages: its end against its start, and its takeover by another host instance.

    python -m bench.orchestrations_convoy

The orchestration goes on with a fresh journal after some messages. All messages are published before a host starts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import psutil

from bench.host import host_process
from bench.messagebox import MeasuredBox
from bench.orchestrations import Key, Kind, deployed_box
from bench.orchestrations_waiting import wait_for
from bench.ratios import Result
from postroom.agent.direct.direct_agent import DirectAgent
from postroom.agent.routing.table import RoutingTable
from postroom.message import Message

_MESSAGES, _PART, _PER_JOURNAL, _AT_A_TIME = 10_000, 1_000, 100, 500
#: For this time after the start of PostgreSQL, host instances get more time to reconnect.
_SERVER_START_SECONDS = 15.0
_CONVOY = f"""
@app.orchestration(activate=Kind == "item", convoy=[Key], host="Default")
async def collect(first: Message) -> None:
    count = carried_state() or 1
    while count < {_MESSAGES}:
        await receive()
        count += 1
        if count % {_PER_JOURNAL} == 0:
            await continue_with(count)
"""
#: A message of the convoy is released with its journal.
_LEFT = "SELECT (SELECT count(*) FROM default_q) + (SELECT count(*) FROM orchestration_messages)"


def measure() -> Iterator[Result]:
    """Yield the results of both rows."""
    with deployed_box(_CONVOY) as box:
        time.sleep(_SERVER_START_SECONDS)
        yield _measure_end(box)
        yield _measure_takeover(box)


def _measure_end(box: MeasuredBox) -> Result:
    _publish(box, "A")
    times: list[float] = []
    with host_process(box, "Default"):
        for count in (_PER_JOURNAL, _PER_JOURNAL + _PART, _MESSAGES - _PART, _MESSAGES):
            wait_for(lambda count=count: _count_done(box) >= count, interval=0.002)  # type: ignore[misc]
            times.append(time.perf_counter())
    first, last = times[1] - times[0], times[3] - times[2]
    return Result(
        name=f"orchestrations: one convoy of {_MESSAGES:,} messages, the time of its last {_PART:,} against its first",
        group="E",
        measured=last / first,
        bar=1.5,
        at_most=True,
        detail=f"{last:.2f} against {first:.2f} s; a fresh journal after each {_PER_JOURNAL} messages",
    )


def _measure_takeover(box: MeasuredBox) -> Result:
    """Kill the host instance that works on it at nine tenths of a convoy. Another one runs already, and takes over."""
    with host_process(box, "Default"), host_process(box, "Default"):
        _publish(box, "B")
        wait_for(lambda: _count_done(box) >= _MESSAGES - _PART, interval=0.002)
        number = box.one("SELECT claimed_by FROM orchestration_instances")
        pid = box.one("SELECT pid FROM host_instances WHERE id = %s", number)
        assert isinstance(pid, int)
        psutil.Process(pid).kill()
        killed = time.perf_counter()
        wait_for(
            lambda: box.one("SELECT 1 FROM orchestration_instances WHERE claimed_by <> %s", number), interval=0.001
        )
        taken, done = time.perf_counter(), _count_done(box)
        wait_for(lambda: _count_done(box) > done, interval=0.001)
        handled = time.perf_counter()
    return Result(
        name=f"orchestrations: the same, host killed at {_MESSAGES - _PART:,}: from the takeover to the first messages"
        " handled, in seconds",
        group="E",
        measured=handled - taken,
        bar=1,
        at_most=True,
        detail=f"{taken - killed:.2f} s from the kill to the takeover",
    )


def _publish(box: MeasuredBox, key: str) -> None:
    publisher = DirectAgent(box.connection, box.host, RoutingTable())
    for start in range(0, _MESSAGES, _AT_A_TIME):
        publisher.publish(
            [Message.of(b"", promoted={Kind: "item", Key: key}) for _ in range(min(_AT_A_TIME, _MESSAGES - start))]
        )
    box.connection.execute("VACUUM ANALYZE")


def _count_done(box: MeasuredBox) -> int:
    return _MESSAGES - int(str(box.one(_LEFT)))


if __name__ == "__main__":
    for result in measure():
        sys.stdout.write(f"{result}\n")
