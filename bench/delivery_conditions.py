"""Delivery with four threads: against a bare loop, with messages that wait for a retry, with an old snapshot, with a
long queue.

    python -m bench.delivery_conditions

An old snapshot is what a long pg_dump has: vacuum removes no row that was deleted after it.
"""

from __future__ import annotations

import statistics
import sys
import time
import uuid
from collections.abc import Iterator

from bench.delivery import MESSAGES, compare_with_bare_loop, measure_round
from bench.delivery_rounds import (
    WARM_UP,
    Round,
    add_ports,
    check_all_released,
    compare_rates,
    fill_queue,
    measure_host,
    set_threads,
)
from bench.messagebox import MeasuredBox, measured_box
from bench.ratios import Result, compute_ratio, measure_alternately
from postroom.messagebox.connection import connect

_THREADS = 4
_RETRIES = 100_000
_SNAPSHOT_SECONDS = 60.0
_BACKLOG, _SHORT_QUEUE = 2_000_000, 10_000
_BACKLOG_ROUNDS = 9
_SCHEDULE = """
    WITH moved AS (DELETE FROM default_q RETURNING *)
    INSERT INTO default_q_scheduled (seq, host_id, message_id, subscription_id, service_class, service_id, instance_id,
                                     priority, attempt, enqueued_at, valid_from, error_code, error_description)
    SELECT seq, host_id, message_id, subscription_id, service_class, service_id, instance_id, priority, 1, enqueued_at,
           now() + interval '1 day', 'DeliveryFailure', 'The receiver is not available.'
      FROM moved
"""


def measure() -> Iterator[Result]:
    """Yield the costs against the bare loop, and the speeds under each condition against the speed without it."""
    with measured_box() as box:
        ports = add_ports(box)
        yield from _compare_with_bare_loop(box, ports)
        yield _compare_with_retries(box, ports)
        yield _compare_with_snapshot(box, ports)
    yield _compare_with_backlog()


def _compare_with_bare_loop(box: MeasuredBox, ports: list[uuid.UUID]) -> Iterator[Result]:
    pairs = compare_with_bare_loop(box, ports, threads=_THREADS)
    what = "delivery: dequeue, adapter that does nothing, complete, release; one host instance, four threads"
    cpu = [(ours.cpu_seconds, bare.cpu_seconds) for ours, bare in pairs]
    ratio, spread = compute_ratio(cpu)
    ours, bare = (1e6 * statistics.median(side) for side in zip(*cpu, strict=True))
    yield Result(
        name=f"{what}: CPU seconds of host and backends per message, against a bare loop of the same changes and reads",
        group="D",
        measured=ratio,
        bar=1.35,
        at_most=True,
        spread=spread,
        detail=f"{ours:.0f} against {bare:.0f} µs",
    )
    yield compare_rates(f"{what}: messages/s, against the same bare loop", 0.7, pairs)


def _compare_with_retries(box: MeasuredBox, ports: list[uuid.UUID]) -> Result:
    def measure_with_retries() -> Round:
        box.empty()
        fill_queue(box, ports, _RETRIES)
        box.connection.execute(_SCHEDULE)
        fill_queue(box, ports, WARM_UP + MESSAGES)
        measured = measure_host(box, MESSAGES)
        check_all_released(box, waiting=_RETRIES)
        return measured

    pairs = measure_alternately(
        measure_with_retries, lambda: measure_round(box, ports, lambda: measure_host(box, MESSAGES))
    )
    return compare_rates(f"delivery with {_RETRIES:,} messages that wait for their retry, against none", 0.8, pairs)


def _compare_with_snapshot(box: MeasuredBox, ports: list[uuid.UUID]) -> Result:
    """Compare the second half of the time with the snapshot, because delivery becomes slower as it grows older."""
    without = statistics.median(measure_round(box, ports, lambda: measure_host(box, MESSAGES)).rate for _ in range(6))
    box.empty()
    rates: list[tuple[float, float]] = []
    with connect(box.url) as snapshot, snapshot.transaction():
        snapshot.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        snapshot.execute("SELECT pg_export_snapshot()")
        started = time.monotonic()
        while (age := time.monotonic() - started) < _SNAPSHOT_SECONDS:
            fill_queue(box, ports, WARM_UP + MESSAGES)
            rates.append((age, measure_host(box, MESSAGES).rate))
    check_all_released(box)
    late = [rate for age, rate in rates if age >= _SNAPSHOT_SECONDS / 2]
    return Result(
        name=f"delivery with a snapshot of {_SNAPSHOT_SECONDS:g} s held open by another session, in its second half,"
        " against none before; one snapshot",
        group="D",
        measured=statistics.median(late) / without,
        bar=0.5,
        spread=(min(late) / without, max(late) / without),
        detail=f"{statistics.median(late):,.0f} against {without:,.0f} messages/s; {rates[0][1]:,.0f} at its start,"
        f" {len(rates) * (WARM_UP + MESSAGES):,} messages delivered under it",
    )


def _compare_with_backlog() -> Result:
    messages = _SHORT_QUEUE - WARM_UP
    with measured_box() as long, measured_box() as short:
        for box in (long, short):
            set_threads(box, _THREADS)
        ports, short_ports = add_ports(long), add_ports(short)
        fill_queue(long, ports, _BACKLOG)

        def measure_long() -> Round:
            long.connection.execute("VACUUM ANALYZE default_q")
            return measure_host(long, messages)

        def measure_short() -> Round:
            short.empty()
            fill_queue(short, short_ports, _SHORT_QUEUE)
            return measure_host(short, messages)

        pairs = measure_alternately(measure_long, measure_short, rounds=_BACKLOG_ROUNDS)
    name = f"delivery with {_BACKLOG:,} messages in the queue, each with its own spool and part row, against"
    return compare_rates(f"{name} {_SHORT_QUEUE:,}", 0.8, pairs)


if __name__ == "__main__":
    for result in measure():
        sys.stdout.write(f"{result}\n")
