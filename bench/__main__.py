"""`make bench`, `make bench GROUP=A`: measures, and writes bench/RESULTS.md, bench/results.json and a picture."""

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

#: The modules of each group; each has a ``measure()``, which gives one result or yields several.
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
}
_FOLDER = Path(__file__).parent


def main(arguments: Sequence[str]) -> int:
    """Measures the groups that are named, or all. Exits with 1 if a bar is not met."""
    unknown = [name for name in arguments if name not in GROUPS]
    if unknown:
        sys.stderr.write(f"There is no group {', '.join(unknown)}. The groups are: {', '.join(GROUPS)}.\n")
        return 2
    groups = list(arguments) or list(GROUPS)
    measured: list[Result] = []
    for group in groups:
        for module in GROUPS[group]:
            sys.stderr.write(f"measuring {module} ...\n")
            started = time.monotonic()
            found: Result | Iterator[Result] = importlib.import_module(module).measure()
            for result in (found,) if isinstance(found, Result) else found:
                measured.append(result)
                took = time.monotonic() - started
                sys.stderr.write(f"  {_line(asdict(result) | {'met': result.met})}  ({took:.0f} s)\n")
    results = _merged(measured, groups)
    (_FOLDER / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    (_FOLDER / "RESULTS.md").write_text(_page(results))
    draw()
    return 0 if all(result.met is not False for result in measured) else 1


def _merged(measured: Sequence[Result], groups: Sequence[str]) -> list[dict[str, Any]]:
    """What was measured now, and what an earlier run says of the other groups."""
    path = _FOLDER / "results.json"
    before = json.loads(path.read_text()) if path.exists() else []
    now = [asdict(result) | {"met": result.met} for result in measured]
    return sorted([row for row in before if row["group"] not in groups] + now, key=lambda row: str(row["group"]))


def _line(row: dict[str, Any]) -> str:
    if row["measured"] is None:
        return f"{row['name']}: not measured ({row['detail']})"
    word = "at most" if row["at_most"] else "at least"
    verdict = "met" if row["met"] else "NOT MET"
    return f"{row['name']}: {row['measured']:.2f}, {word} {row['bar']:g} wanted: {verdict}. {row['detail']}"


def _page(results: list[dict[str, Any]]) -> str:
    lines = [
        "# Results",
        "",
        "Written by `make bench`. A figure without a unit is a ratio of two things that were measured alternately in",
        "one run, at least five times unless the row says otherwise: the median, with the lowest and the highest value",
        "in brackets. Absolute numbers depend on the machine and its other load, and are for orientation only.",
        "",
        f"Measured on: {_machine()}",
        "",
        "| group | what | target | measured | met | for orientation |",
        "|---|---|---|---|---|---|",
    ]
    for row in results:
        wanted = f"{'at most' if row['at_most'] else 'at least'} {row['bar']:g}"
        spread = f" ({row['spread'][0]:.2f} to {row['spread'][1]:.2f})" if row["spread"] else ""
        measured = "not measured" if row["measured"] is None else f"{row['measured']:.2f}{spread}"
        met = {True: "yes", False: "**no**", None: "unknown"}[row["met"]]
        lines.append(f"| {row['group']} | {row['name']} | {wanted} | {measured} | {met} | {row['detail']} |")
    notes = _FOLDER / "NOTES.md"
    return "\n".join(lines) + "\n" + (f"\n{notes.read_text()}" if notes.exists() else "")


def _machine() -> str:
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB of memory, {platform.system()}"
        f" {platform.release().split('-')[0]}, Python {platform.python_version()}"
    )


if __name__ == "__main__":
    # Servers and brokers that a benchmark has started are ended on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(sys.argv[1:]))
