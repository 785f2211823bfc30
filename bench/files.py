"""Files from a folder to a File send port: 10,000 small files against a plain loop, and the latency of one file.

    python -m bench.files

The pipeline and the host are processes with default settings. The plain loop reads each file, writes it, forces it and
its folder to disk, and removes it from its folder.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree

from bench.host import host_process
from bench.messagebox import MeasuredBox, measured_box
from bench.pipeline import pipeline_process
from bench.ratios import Result, compute_ratio, measure_alternately, seconds
from postroom import adapters, pipelines
from postroom.system_properties import BTS

_FILES = 10_000
_CONTENT = b"x" * 1_000
_ROUNDS = 3
_LATENCIES = 30
_PATIENCE_SECONDS = 600.0


def measure() -> Iterator[Result]:
    """Yield files/s over files/s of the plain loop, and the median latency of a file."""
    adapter = adapters.File("in", settle=0.0)
    with measured_box(adapter=adapter, pipeline=pipelines.PassThrough(), subscriptions=0) as box:
        box.add_send_port("Out", adapters.File("out"), BTS.ReceivePortName == "In")
        (box.home / "out").mkdir()
        with pipeline_process(box, "local[2]"), host_process(box, box.host.name):
            yield _compare_with_plain_loop(box)
            yield _measure_latency(box)


def _compare_with_plain_loop(box: MeasuredBox) -> Result:
    pairs = measure_alternately(lambda: _pass_files(box), lambda: _copy_plainly(box.home), rounds=_ROUNDS)
    ratio, spread = compute_ratio(pairs)
    ours, plain = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Result(
        name=f"{_FILES:,} files of 1 KB from a folder to a File send port, against a plain Python loop that reads,"
        f" writes, forces file and folder to disk, and removes each; {_ROUNDS} rounds",
        group="D",
        measured=ratio,
        bar=0.5,
        spread=spread,
        detail=f"{ours:,.0f} against {plain:,.0f} files/s; {2 * plain:,.0f} fsync/s in the plain loop",
    )


def _measure_latency(box: MeasuredBox) -> Result:
    times, until_publish = [], []
    for _ in range(_LATENCIES):
        [file] = _write_files(box.home / "staged", 1)
        started = time.time()
        file.rename(box.home / "in" / file.name)
        _wait_for(lambda: _count_files(box.home / "out") == 1, interval=0.001)
        times.append(1000 * (time.time() - started))
        published = box.one("SELECT extract(epoch FROM published_at)::float8 FROM spool")
        if isinstance(published, float):  # else the message was removed already
            until_publish.append(1000 * (published - started))
        _wait_until_idle(box)
        time.sleep(0.3)
    return Result(
        name="latency of one file through an idle system, from the rename into its folder, without a settle time, to"
        f" its arrival at the File send port, in ms, median of {_LATENCIES}",
        group="D",
        measured=statistics.median(times),
        bar=60,
        at_most=True,
        spread=(min(times), max(times)),
        detail=f"{statistics.median(until_publish):.0f} ms until the transaction that publishes it starts",
    )


def _pass_files(box: MeasuredBox) -> float:
    """Return files/s, from the first rename until every file is sent and removed from its folder."""
    files = _write_files(box.home / "staged", _FILES)
    started = time.perf_counter()
    for file in files:
        file.rename(box.home / "in" / file.name)
    _wait_for(lambda: _count_files(box.home / "out") == _FILES and not box.one("SELECT count(*) FROM file_claims"))
    rate = _FILES / (time.perf_counter() - started)
    _wait_until_idle(box)
    return rate


def _wait_until_idle(box: MeasuredBox) -> None:
    """Wait until nothing is left of the files, and remove the sent ones."""
    _wait_for(lambda: not box.one("SELECT (SELECT count(*) FROM file_claims) + (SELECT count(*) FROM spool)"))
    for file in (box.home / "out").iterdir():
        file.unlink()


def _copy_plainly(home: Path) -> float:
    """Return files/s of the plain loop."""
    files = _write_files(home / "staged", _FILES)
    target = home / "plain"
    target.mkdir()
    folder = os.open(target, os.O_RDONLY)

    def copy() -> None:
        for file in files:
            content = file.read_bytes()
            with (target / file.name).open("wb") as copied:
                copied.write(content)
                copied.flush()
                os.fsync(copied.fileno())
            os.fsync(folder)
            file.unlink()

    elapsed = seconds(copy)
    os.close(folder)
    rmtree(target)
    return _FILES / elapsed


def _write_files(folder: Path, count: int) -> list[Path]:
    folder.mkdir(exist_ok=True)
    files = [folder / f"{uuid.uuid4()}.txt" for _ in range(count)]
    for file in files:
        file.write_bytes(_CONTENT)
    return files


def _count_files(folder: Path) -> int:
    return sum(not name.startswith(".") for name in os.listdir(folder))  # noqa: PTH208 - faster with many files


def _wait_for(condition: Callable[[], bool], *, interval: float = 0.05) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("The files did not arrive in time.")
        time.sleep(interval)


if __name__ == "__main__":
    for result in measure():
        sys.stdout.write(f"{result}\n")
