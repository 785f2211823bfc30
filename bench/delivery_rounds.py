"""Rounds of delivery: a host instance, or a bare loop with the same reads and row changes, empties a queue.

The clock starts after a warm-up (connections, plans, caches). No job runs at the same time.
"""

from __future__ import annotations

import statistics
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import psutil
from psycopg.types.json import Jsonb

from bench.messagebox import MeasuredBox, Priority, Region, Total
from bench.ratios import Result, compute_ratio
from postroom.adapters.contract import Attempt
from postroom.adapters.null import Null, NullSender
from postroom.hosts import HostInstance, HostSettings
from postroom.message import Message
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection, connect
from postroom.system_properties import BTS, FILE

WARM_UP = 2_000
_IN_MEMORY = 200  # messages, for the host and for the loop
_LOAD, CLAIM, _CLAIM_IN_ORDER, COMPLETE = (
    Path(__file__).with_name(f"delivery_{name}.sql").read_text()
    for name in ("load", "claim", "claim_in_order", "complete")
)


@dataclass(frozen=True, kw_only=True)
class Round:
    """Messages/s, and the CPU seconds of this process and its PostgreSQL backends for each message."""

    rate: float
    cpu_seconds: float


def add_ports(box: MeasuredBox, count: int = 1) -> list[uuid.UUID]:
    """Add send ports with the null adapter."""
    return [box.add_send_port(f"Nowhere {number}", Null()) for number in range(count)]


def set_ordered(box: MeasuredBox, ordered: bool) -> None:
    """Make all send ports ordered, or unordered."""
    settings = Jsonb({"ordered": ordered})
    box.connection.execute("UPDATE send_ports SET definition = definition || %s", (settings,))


def set_threads(box: MeasuredBox, count: int) -> None:
    """Set the number of dequeue threads of a host instance."""
    box.connection.execute(
        "UPDATE service_classes SET dequeue_threads = %s WHERE name = %s", (count, ServiceClass.MESSAGING_IN_PROCESS)
    )


def fill_queue(box: MeasuredBox, ports: Sequence[uuid.UUID], count: int, *, ordered: bool = False) -> None:
    """Add messages to the queue, and vacuum the tables as autovacuum would."""
    message = Message.of(
        b"x" * 1000,
        promoted={
            Region: "R7",
            Total: Decimal("12345.67"),
            Priority: 3,
            BTS.ReceivePortName: "In",
            BTS.InboundTransportType: "FILE",
            BTS.InterchangeID: str(uuid.uuid4()),
            BTS.InterchangeSequenceNumber: 17,
        },
        written={FILE.ReceivedFileName: "/var/orders/in/orders-2026-01-31.jsonl"},
    )
    assert message.body is not None
    box.connection.execute(
        _LOAD,
        {
            "count": count,
            "context": message.context.to_json(),
            "body": message.body.data,
            "host_id": box.host.host_id,
            "ports": list(ports),
            "ordered": ordered,
        },
    )
    box.connection.execute("VACUUM ANALYZE")
    box.connection.execute("CHECKPOINT")


class IdleSender(NullSender):
    """An adapter that does nothing. Its base class reads the body and the context."""

    def send(self, message: Message, attempt: Attempt) -> None:
        pass


def measure_host(box: MeasuredBox, messages: int, sender: type[NullSender] = IdleSender) -> Round:
    """Measure a host instance, which delivers at least this number of messages after the warm-up."""
    settings = HostSettings(memory_queue=_IN_MEMORY, runs_jobs=False, heartbeat=timedelta(hours=1))
    with HostInstance(
        box.url,
        box.host.name,
        box.home,
        as_role=True,
        build_adapter=lambda definition, home: sender(),
        settings=settings,
    ) as instance:
        return _measure(box, lambda: instance.counts["completed"], messages)


def measure_bare_loop(box: MeasuredBox, messages: int, *, threads: int) -> Round:
    """Measure a loop in each thread that claims a batch, reads its messages, deletes its rows and releases them."""
    batch = _IN_MEMORY // threads

    def claim(connection: Connection, claim_id: uuid.UUID) -> int:
        rows = connection.execute(CLAIM, (claim_id, batch), binary=True).fetchall()
        if rows:
            connection.execute(COMPLETE, (claim_id, f"{{{','.join(str(row[0]) for row in rows)}}}"))
        return len(rows)

    with _run_loops(box, claim, threads) as done:
        return _measure(box, lambda: sum(done), messages)


def measure_bare_order(box: MeasuredBox, messages: int, port: uuid.UUID) -> Round:
    """Measure a loop that delivers the messages of an ordered port, with one commit per message."""

    def claim(connection: Connection, claim_id: uuid.UUID) -> int:
        with connection.transaction():
            row = connection.execute(_CLAIM_IN_ORDER, (claim_id, port), binary=True).fetchone()
            if row is None:
                return 0
            connection.execute(COMPLETE, (claim_id, f"{{{row[0]}}}"))
        return 1

    with _run_loops(box, claim, 1) as done:
        return _measure(box, lambda: sum(done), messages)


@contextmanager
def _run_loops(
    box: MeasuredBox, claim: Callable[[Connection, uuid.UUID], int], threads: int
) -> Iterator[Sequence[int]]:
    """Call ``claim`` in threads until the queue is empty. Yield the number of messages of each thread.

    The connections stay open until the end of the block, so that the CPU times of their backends can be read.
    """
    done = [0] * threads
    is_measured = threading.Event()

    def loop(number: int) -> None:
        with connect(box.url) as connection:
            while claimed := claim(connection, uuid.uuid4()):
                done[number] += claimed
            is_measured.wait()

    running = [threading.Thread(target=loop, args=(number,), daemon=True) for number in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield done
    finally:
        is_measured.set()
        for thread in running:
            thread.join()


def _measure(box: MeasuredBox, done: Callable[[], int], messages: int) -> Round:
    while done() < WARM_UP:
        time.sleep(0.001)
    cpu_before, before, started = _read_cpu_seconds(box), done(), time.perf_counter()
    while done() < WARM_UP + messages:
        time.sleep(0.005)  # a higher rate of polls would slow down the measured threads
    count, elapsed = done() - before, time.perf_counter() - started
    return Round(rate=count / elapsed, cpu_seconds=(_read_cpu_seconds(box) - cpu_before) / count)


def _read_cpu_seconds(box: MeasuredBox) -> float:
    """Return the CPU seconds of this process and of the backends of its other connections."""
    backends = box.connection.execute(
        "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )
    total = time.process_time()
    for (pid,) in backends.fetchall():
        with suppress(psutil.NoSuchProcess):
            total += sum(psutil.Process(pid).cpu_times()[:2])
    return total


def check_all_released(box: MeasuredBox, *, waiting: int = 0) -> None:
    """Raise an error unless the work queue is empty, and only ``waiting`` messages are stored, each with its part."""
    left = [box.one(f"SELECT count(*) FROM {table}") for table in ("work_queue", "spool", "parts")]
    if left != [0, waiting, waiting]:
        raise RuntimeError(
            f"{left[0]} rows, {left[1]} messages and {left[2]} parts are left, instead of {waiting} messages"
        )


def compare_rates(name: str, bar: float, pairs: Sequence[tuple[Round, Round]]) -> Result:
    """Return the result of group D: messages/s over those of the baseline."""
    rates = [(ours.rate, baseline.rate) for ours, baseline in pairs]
    ratio, spread = compute_ratio(rates)
    ours, baseline = (statistics.median(side) for side in zip(*rates, strict=True))
    detail = f"{ours:,.0f} against {baseline:,.0f} messages/s"
    return Result(name=name, group="D", measured=ratio, bar=bar, spread=spread, detail=detail)
