"""Run the benchmarks of `make bench` and write bench/RESULTS.md, bench/results.json and a picture."""

from __future__ import annotations

import importlib
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from bench.curves import draw
from bench.ratios import Result

#: The modules of each group. Each has a function ``measure()``, which returns one result or yields several.
GROUPS: dict[str, tuple[str, ...]] = {
    "A": ("bench.streaming", "bench.direct", "bench.delivery", "bench.index", "bench.memory"),
    "B": ("bench.matching", "bench.building", "bench.waiting", "bench.headers_exchange"),
    "C": (
        "bench.streaming_whole",
        "bench.bulk",
        "bench.xml_validated",
        "bench.cores",
        "bench.idle",
        "bench.latency",
        "bench.micro_batch",
        "bench.memory_packed",
    ),
    "D": (
        "bench.delivery_conditions",
        "bench.ordered",
        "bench.takeover",
        "bench.files",
        "bench.http_post",
        "bench.two_way",
        "bench.slow_service",
        "bench.idle_hosts",
    ),
    "E": (
        "bench.orchestrations",
        "bench.orchestrations_dbos",
        "bench.orchestrations_waiting",
        "bench.orchestrations_convoy",
    ),
    "S": ("bench.sinks", "bench.sinks_once", "bench.publish_many", "bench.start", "bench.matching_low_cardinality"),
}
_FOLDER = Path(__file__).parent


def main(arguments: Sequence[str]) -> int:
    """Measure the named groups, or all. Return 1 if a target is not met."""
    unknown = [name for name in arguments if name not in GROUPS]
    if unknown:
        sys.stderr.write(f"Unknown group: {', '.join(unknown)}. The groups are: {', '.join(GROUPS)}.\n")
        return 2
    groups = list(arguments) or list(GROUPS)
    measured: list[Result] = []
    for group in groups:
        for module in GROUPS[group]:
            sys.stderr.write(f"measuring {module} ...\n")
            started = time.monotonic()
            measurement: Result | Iterator[Result] = importlib.import_module(module).measure()
            for result in (measurement,) if isinstance(measurement, Result) else measurement:
                measured.append(result)
                elapsed = time.monotonic() - started
                sys.stderr.write(f"  {_format_line(asdict(result) | {'met': result.met})}  ({elapsed:.0f} s)\n")
    results = _merge_results(measured, groups)
    (_FOLDER / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    (_FOLDER / "RESULTS.md").write_text(_format_page(results))
    draw()
    return 0 if all(result.met is not False for result in measured) else 1


def _merge_results(measured: Sequence[Result], groups: Sequence[str]) -> list[dict[str, Any]]:
    """Return the new results, and the stored results of the other groups."""
    path = _FOLDER / "results.json"
    before = json.loads(path.read_text()) if path.exists() else []
    now = [asdict(result) | {"met": result.met} for result in measured]
    return sorted([row for row in before if row["group"] not in groups] + now, key=lambda row: str(row["group"]))


def _format_line(row: dict[str, Any]) -> str:
    if row["measured"] is None:
        return f"{row['name']}: not measured ({row['detail']})"
    relation = "at most" if row["at_most"] else "at least"
    verdict = "met" if row["met"] else "NOT MET"
    return f"{row['name']}: {row['measured']:.2f}, target {relation} {row['bar']:g}: {verdict}. {row['detail']}"


def _format_page(results: list[dict[str, Any]]) -> str:
    lines = [
        "# Results",
        "",
        "Written by `make bench`. A figure without a unit is a ratio of two things that were measured alternately in",
        "one run, at least five times unless the row says otherwise: the median, with the lowest and the highest value",
        "in brackets. Absolute numbers depend on the machine and its other load, and are for orientation only.",
        "",
        f"Measured on: {_describe_machine()}",
        "",
        "| group | what | target | measured | met | for orientation |",
        "|---|---|---|---|---|---|",
    ]
    for row in results:
        target = f"{'at most' if row['at_most'] else 'at least'} {row['bar']:g}"
        spread = f" ({row['spread'][0]:.2f} to {row['spread'][1]:.2f})" if row["spread"] else ""
        measured = "not measured" if row["measured"] is None else f"{row['measured']:.2f}{spread}"
        met = {True: "yes", False: "**no**", None: "unknown"}[row["met"]]
        lines.append(f"| {row['group']} | {row['name']} | {target} | {measured} | {met} | {row['detail']} |")
    notes = _FOLDER / "NOTES.md"
    return "\n".join(lines) + "\n" + (f"\n{notes.read_text()}" if notes.exists() else "")


def _describe_machine() -> str:
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB of memory, {platform.system()}"
        f" {platform.release().split('-')[0]}, Python {platform.python_version()}"
    )


if __name__ == "__main__":
    # Exit normally, so that the servers and brokers of a benchmark are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(sys.argv[1:]))
