"""Delivery: a host instance with two threads against a bare loop with the same reads and row changes.

A round starts with all messages in the queue and ends when the last message is deleted and released. The adapter reads
body and context and does nothing else.

    python -m bench.delivery
"""

from __future__ import annotations

import statistics
import sys
import uuid
from collections.abc import Callable

from bench.delivery_rounds import (
    WARM_UP,
    IdleSender,
    Round,
    add_ports,
    check_all_released,
    fill_queue,
    measure_bare_loop,
    measure_host,
    set_threads,
)
from bench.messagebox import MeasuredBox, measured_box
from bench.ratios import Result, compute_ratio, measure_alternately
from postroom.adapters.null import NullSender

MESSAGES = 20_000


def measure() -> Result:
    """Return messages/s of the host over messages/s of the bare loop."""
    with measured_box() as box:
        pairs = compare_with_bare_loop(box, add_ports(box), threads=2, sender=NullSender)
    rates = [(ours.rate, bare.rate) for ours, bare in pairs]
    ratio, spread = compute_ratio(rates)
    ours, bare = (statistics.median(side) for side in zip(*rates, strict=True))
    return Result(
        name="delivery: dequeue, deliver, complete, release, two threads, against a bare loop of the same changes",
        group="A",
        measured=ratio,
        bar=0.6,
        spread=spread,
        detail=f"{ours:,.0f} messages/s against {bare:,.0f}",
    )


def compare_with_bare_loop(
    box: MeasuredBox, ports: list[uuid.UUID], *, threads: int, sender: type[NullSender] = IdleSender
) -> list[tuple[Round, Round]]:
    """Measure the host and the bare loop alternately, with this number of threads each."""
    set_threads(box, threads)
    return measure_alternately(
        lambda: measure_round(box, ports, lambda: measure_host(box, MESSAGES, sender)),
        lambda: measure_round(box, ports, lambda: measure_bare_loop(box, MESSAGES, threads=threads)),
    )


def measure_round(box: MeasuredBox, ports: list[uuid.UUID], measure: Callable[[], Round]) -> Round:
    """Fill an empty MessageBox, measure, and check that every message was delivered and released."""
    box.empty()
    fill_queue(box, ports, WARM_UP + MESSAGES)
    measured = measure()
    check_all_released(box)
    return measured


if __name__ == "__main__":
    sys.stdout.write(f"{measure()}\n")
