"""Ordered delivery: one ordered send port against a bare loop, and a hundred of them against unordered delivery.

python -m bench.ordered
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from bench.delivery_rounds import (
    WARM_UP,
    Round,
    add_ports,
    check_all_released,
    compare_rates,
    fill_queue,
    measure_bare_order,
    measure_host,
    set_ordered,
    set_threads,
)
from bench.messagebox import MeasuredBox, measured_box
from bench.ratios import Result, measure_alternately

_THREADS = 4
_PORTS = 100
_MESSAGES = 20_000
_MESSAGES_OF_ONE = 5_000


def measure() -> Iterator[Result]:
    """Yield messages/s of one ordered port over the bare loop, and of many over the same ports unordered."""
    with measured_box() as box:
        yield _compare_one_port(box)
    with measured_box() as box:
        yield _compare_many_ports(box)


def _compare_one_port(box: MeasuredBox) -> Result:
    set_threads(box, _THREADS)
    [port] = ports = add_ports(box)
    set_ordered(box, True)

    def fill() -> None:
        box.empty()
        fill_queue(box, ports, WARM_UP + _MESSAGES_OF_ONE, ordered=True)

    def measure_ours() -> Round:
        fill()
        measured = measure_host(box, _MESSAGES_OF_ONE)
        check_all_released(box)
        return measured

    def measure_bare() -> Round:
        fill()
        measured = measure_bare_order(box, _MESSAGES_OF_ONE, port)
        check_all_released(box)
        return measured

    pairs = measure_alternately(measure_ours, measure_bare)
    return compare_rates("one ordered send port, against a bare loop with one commit per message", 0.5, pairs)


def _compare_many_ports(box: MeasuredBox) -> Result:
    set_threads(box, _THREADS)
    ports = add_ports(box, _PORTS)

    def measure(ordered: bool) -> Round:
        box.empty()
        set_ordered(box, ordered)
        fill_queue(box, ports, WARM_UP + _MESSAGES, ordered=ordered)
        measured = measure_host(box, _MESSAGES)
        check_all_released(box)
        return measured

    pairs = measure_alternately(lambda: measure(True), lambda: measure(False))
    return compare_rates(f"{_PORTS} ordered send ports at once, against the same ports unordered", 0.5, pairs)


if __name__ == "__main__":
    for result in measure():
        sys.stdout.write(f"{result}\n")
