"""Documents of 2 KB by HTTP POST over 16 connections to one send port, against a bare server with the same row changes.

    python -m bench.http_post

The pipeline and the host are processes with default settings. The pipeline passes documents through, and the adapter of
the send port does nothing. The clock runs until every document is sent, so a backlog counts as time. Each document
contains the time of its request, from which the host computes the time until it is sent.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
import uuid

from bench.host import host_process
from bench.http_bare import bare_server
from bench.http_client import HttpClient, find_free_port, wait_for_listener
from bench.messagebox import MeasuredBox, measured_box
from bench.pipeline import pipeline_process
from bench.ratios import Result
from postroom import adapters, pipelines
from postroom.adapters.null import Null
from postroom.system_properties import BTS

_CONNECTIONS = 16
_SECONDS = 120.0
_WARM_UP_SECONDS = 10.0
_BODY_BYTES = 2_000
_PATIENCE_SECONDS = 600.0
_PATH = "/documents"
_DELAYS = "delays"  # a line for each document
_MEASURING_HOST = f"""
import sys, time
from pathlib import Path
from postroom.adapters.null import NullSender
from postroom.hosts import run_host
url, name, home = sys.argv[1], sys.argv[2], Path(sys.argv[3])
delays = (home / "{_DELAYS}").open("w", buffering=1)
class Measuring(NullSender):
    def send(self, message, attempt):
        posted = float(message.body.data.split(b" ", 1)[0])
        delays.write(f"{{time.time() - posted}}\\n")
run_host(url, name, home, as_role=True, build_adapter=lambda definition, home: Measuring())
"""


def measure() -> Result:
    """Return documents/s over documents/s of the bare server."""
    port = find_free_port()
    adapter = adapters.HttpReceive(_PATH, port=port)
    with measured_box(adapter=adapter, pipeline=pipelines.PassThrough(), subscriptions=0) as box:
        send_port = box.add_send_port("Out", Null(), BTS.ReceivePortName == "In")
        with pipeline_process(box, "local[2]"), host_process(box, box.host.name, _MEASURING_HOST):
            wait_for_listener(port)
            _measure_rate(box, port, _WARM_UP_SECONDS)
            before = len(_read_delays(box))
            ours, spooled = _measure_rate(box, port, _SECONDS)
            delays = _read_delays(box)[before:]
        box.empty()
        with bare_server(box, send_port, "one-way") as bare_port:
            _measure_rate(box, bare_port, _WARM_UP_SECONDS)
            bare, _ = _measure_rate(box, bare_port, _SECONDS)
    return Result(
        name=f"documents of 2 KB by HTTP POST over {_CONNECTIONS} connections, pass-through, one send port,"
        f" {_SECONDS:g} s once, against the same server with the same row changes bare",
        group="D",
        measured=ours / bare,
        bar=0.5,
        detail=f"{ours:,.0f} against {bare:,.0f} documents/s; {1000 * statistics.median(delays):.0f} ms from arrival to"
        f" sent, median; {spooled:,} messages in the spool at the last request",
    )


def _measure_rate(box: MeasuredBox, port: int, duration: float) -> tuple[float, int]:
    """Return documents/s until the last one is sent, and the length of the spool at the last request."""
    started = time.perf_counter()
    count = asyncio.run(_post_for(port, duration))
    spooled = int(str(box.one("SELECT count(*) FROM spool")))
    while box.one("SELECT (SELECT count(*) FROM inbox) + (SELECT count(*) FROM work_queue)"):
        if time.perf_counter() - started > duration + _PATIENCE_SECONDS:
            raise TimeoutError("The documents were not sent in time.")
        time.sleep(0.05)
    return count / (time.perf_counter() - started), spooled


async def _post_for(port: int, duration: float) -> int:
    """Return the number of documents that were accepted."""
    end = time.perf_counter() + duration

    async def post_repeatedly() -> int:
        client = await HttpClient.connect(port, _PATH)
        count = 0
        while time.perf_counter() < end:
            await client.post(f"{time.time()} {uuid.uuid4()}".encode().ljust(_BODY_BYTES, b"x"))
            count += 1
        client.close()
        return count

    return sum(await asyncio.gather(*(post_repeatedly() for _ in range(_CONNECTIONS))))


def _read_delays(box: MeasuredBox) -> list[float]:
    return [float(line) for line in (box.home / _DELAYS).read_text().splitlines()]


if __name__ == "__main__":
    sys.stdout.write(f"{measure()}\n")
