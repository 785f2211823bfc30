"""Two-way HTTP through the MessageBox: 50 callers and one caller against a bare server, and 1,000 waiting callers.

    python -m bench.two_way

The send port has an adapter that answers each request with the request itself, at once or when it is released. Every
caller checks that it gets its own answer.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import psutil

from bench.host import host_process
from bench.http_bare import bare_server
from bench.http_client import HttpClient, find_free_port, wait_for_listener
from bench.messagebox import MeasuredBox, measured_box
from bench.ratios import Result
from postroom import adapters, pipelines
from postroom.adapters.null import Null
from postroom.hosts.run import raise_file_limit
from postroom.system_properties import BTS

_PATH = "/quotes"
_CALLERS = 50
_SECONDS = 20.0
_WARM_UP_SECONDS = 5.0  # and the time of one caller
_MANY_WAITING, _FEW_WAITING = 1_000, 10
_PATIENCE_SECONDS = 120.0
_BODY_BYTES = 2_000
_HOLD = "hold"  # while this file exists, no request is answered
_WATCH_SECONDS = 0.01
_ANSWERING_HOST = f"""
import sys, threading, time
from pathlib import Path
from postroom.adapters.contract import ReceivedResponse
from postroom.adapters.null import NullSender
from postroom.hosts import run_host
from postroom.message import Bytes, Context
url, name, home = sys.argv[1], sys.argv[2], Path(sys.argv[3])
answering = threading.Event()
def watch():
    while True:
        answering.clear() if (home / "{_HOLD}").exists() else answering.set()
        time.sleep({_WATCH_SECONDS})
threading.Thread(target=watch, daemon=True).start()
class Answering(NullSender):
    def solicit(self, message, attempt):
        answering.wait()
        return ReceivedResponse(body=Bytes(message.body.data), context=Context())
run_host(url, name, home, as_role=True, build_adapter=lambda definition, home: Answering())
"""


def measure() -> Iterator[Result]:
    """Yield the comparisons with the bare server, and the results of waiting callers."""
    raise_file_limit(4 * _MANY_WAITING)
    port = find_free_port()
    adapter = adapters.HttpReceive(
        _PATH, port=port, client_connections=2 * _MANY_WAITING, response_timeout=_PATIENCE_SECONDS
    )
    with measured_box(adapter=adapter, pipeline=pipelines.PassThrough(), subscriptions=0) as box:
        send_port = box.add_send_port("Quotes", Null(), BTS.ReceivePortName == "In")
        box.make_two_way(send_port)
        with host_process(box, box.host.name, _ANSWERING_HOST) as host:
            wait_for_listener(port)
            ours = _measure_calls(port)
            waiting = list(_measure_waiting(box, host, port))
        box.empty()
        with bare_server(box, send_port, "two-way") as bare_port:
            bare = _measure_calls(bare_port)
    yield from _compare(ours, bare)
    yield from waiting


@dataclass(frozen=True, kw_only=True)
class _Calls:
    """The times of the calls of many callers, and of one caller, in seconds."""

    many: list[float]
    one: list[float]


def _measure_calls(port: int) -> _Calls:
    asyncio.run(_call_for(port, _CALLERS, _WARM_UP_SECONDS))
    one = asyncio.run(_call_for(port, 1, _WARM_UP_SECONDS))
    return _Calls(many=asyncio.run(_call_for(port, _CALLERS, _SECONDS)), one=one)


def _compare(ours: _Calls, bare: _Calls) -> Iterator[Result]:
    what = f"two-way HTTP through the MessageBox, {_BODY_BYTES // 1000} KB"
    rate, bare_rate = len(ours.many) / _SECONDS, len(bare.many) / _SECONDS
    yield Result(
        name=f"{what}, {_CALLERS} callers: calls/s, against the same server with the same transactions bare;"
        f" {_SECONDS:g} s once",
        group="D",
        measured=rate / bare_rate,
        bar=0.5,
        detail=f"{rate:,.0f} against {bare_rate:,.0f} calls/s",
    )
    alone, bare_alone = 1000 * statistics.median(ours.one), 1000 * statistics.median(bare.one)
    yield Result(
        name=f"{what}, one caller: median in ms, minus that of the bare server",
        group="D",
        measured=alone - bare_alone,
        bar=10,
        at_most=True,
        detail=f"{alone:.1f} against {bare_alone:.1f} ms",
    )
    median, slowest = statistics.median(ours.many), sorted(ours.many)[int(0.99 * len(ours.many))]
    yield Result(
        name=f"{what}, {_CALLERS} callers: p99 against its own median",
        group="D",
        measured=slowest / median,
        bar=4,
        at_most=True,
        detail=f"{1000 * slowest:.0f} against {1000 * median:.0f} ms",
    )


def _measure_waiting(box: MeasuredBox, host: psutil.Process, port: int) -> Iterator[Result]:
    # The first time, threads that were not needed before open their connections, which stay open.
    asyncio.run(_wait_and_answer(box, host, port, _MANY_WAITING))
    few, _ = asyncio.run(_wait_and_answer(box, host, port, _FEW_WAITING))
    many, elapsed = asyncio.run(_wait_and_answer(box, host, port, _MANY_WAITING))
    yield Result(
        name=f"two-way HTTP: threads and connections of the host with {_MANY_WAITING:,} callers that wait with"
        f" committed requests, against {_FEW_WAITING}",
        group="D",
        measured=sum(many) / sum(few),
        bar=1,
        at_most=True,
        detail=f"{many[0]} threads and {many[1]} connections against {few[0]} and {few[1]}",
    )
    yield Result(
        name=f"two-way HTTP: {_MANY_WAITING:,} waiting callers get their own answers, in seconds after the release",
        group="D",
        measured=elapsed,
        bar=10,
        at_most=True,
        detail=f"{_MANY_WAITING / elapsed:,.0f} answers/s",
    )


async def _wait_and_answer(
    box: MeasuredBox, host: psutil.Process, port: int, callers: int
) -> tuple[tuple[int, int], float]:
    """Return the threads and connections of the host while the callers wait, and the seconds until all are answered."""
    hold = box.home / _HOLD
    hold.touch()
    await asyncio.sleep(10 * _WATCH_SECONDS)
    clients = [await HttpClient.connect(port, _PATH) for _ in range(callers)]
    calls = [asyncio.create_task(_ask(client)) for client in clients]
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while box.one("SELECT count(*) FROM work_queue") != callers:
        if time.monotonic() > deadline:
            raise TimeoutError("The requests were not published in time.")
        await asyncio.sleep(0.05)
    await asyncio.sleep(1.0)  # threads and connections of the publishes may end
    connections = box.one(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", f"postroom host {box.host.name}"
    )
    used = host.num_threads(), int(str(connections))
    started = time.perf_counter()
    hold.unlink()
    await asyncio.gather(*calls)
    elapsed = time.perf_counter() - started
    for client in clients:
        client.close()
    return used, elapsed


async def _call_for(port: int, callers: int, duration: float) -> list[float]:
    """Return the times of the calls of concurrent callers."""
    end = time.perf_counter() + duration
    times: list[float] = []

    async def call_repeatedly() -> None:
        client = await HttpClient.connect(port, _PATH)
        while (started := time.perf_counter()) < end:
            await _ask(client)
            times.append(time.perf_counter() - started)
        client.close()

    await asyncio.gather(*(call_repeatedly() for _ in range(callers)))
    return times


async def _ask(client: HttpClient) -> None:
    """Send a request. Raise an error unless the answer is the request itself."""
    body = uuid.uuid4().hex.encode().ljust(_BODY_BYTES, b"x")
    answer = await client.post(body)
    if answer != body:
        raise RuntimeError(f"A caller got the answer {answer[:32]!r} to {body[:32]!r}.")


if __name__ == "__main__":
    for result in measure():
        sys.stdout.write(f"{result}\n")
