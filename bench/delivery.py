"""Delivery: a host instance with two threads against a bare loop with the same reads and row changes.

A round starts with all messages in the queue and ends when the last message is deleted and released. The clock starts
after a warm-up. The adapter reads body and context and does nothing else. No job runs at the same time.
"""

from __future__ import annotations

import statistics
import threading
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

from psycopg.types.json import Jsonb

from bench.messagebox import MeasuredBox, Priority, Region, Total, measured_box
from bench.ratios import Result, compute_ratio, measure_alternately
from postroom.hosts import HostInstance, HostSettings
from postroom.message import Message
from postroom.messagebox.configuration import ServiceClass
from postroom.messagebox.connection import connect
from postroom.system_properties import BTS, FILE

MESSAGES = 20_000
WARM_UP = 2_000
_THREADS = 2
_IN_MEMORY = 200  # messages, for the host and for the loop
_LOAD, _CLAIM, _COMPLETE = (
    Path(__file__).with_name(f"delivery_{name}.sql").read_text() for name in ("load", "claim", "complete")
)


def measure() -> Result:
    """Return messages/s of the host over messages/s of the bare loop."""
    with measured_box() as box:
        service_id = _add_port(box)
        pairs = measure_alternately(lambda: _measure_host(box, service_id), lambda: _measure_bare_loop(box, service_id))
    ratio, spread = compute_ratio(pairs)
    rates = [statistics.median(side) for side in zip(*pairs, strict=True)]
    return Result(
        name="delivery: dequeue, deliver, complete, release, two threads, against a bare loop of the same changes",
        group="A",
        measured=ratio,
        bar=0.6,
        spread=spread,
        detail=f"{rates[0]:,.0f} messages/s against {rates[1]:,.0f}",
    )


def _add_port(box: MeasuredBox) -> uuid.UUID:
    """Add a send port with the null adapter, and set the number of dequeue threads."""
    box.connection.execute(
        "UPDATE service_classes SET dequeue_threads = %s WHERE id = %s",
        (_THREADS, int(ServiceClass.MESSAGING_IN_PROCESS)),
    )
    port = box.one(
        "INSERT INTO send_ports (application_id, host_id, name, adapter, uri, state)"
        " SELECT id, %s, 'Nowhere', %s, 'null:', 3 FROM applications RETURNING id",
        box.host.host_id,
        Jsonb({"kind": "null"}),
    )
    assert isinstance(port, uuid.UUID)
    return port


def _fill_queue(box: MeasuredBox, service_id: uuid.UUID) -> None:
    """Fill the queue, and vacuum the tables as autovacuum would."""
    box.empty()
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
            "count": WARM_UP + MESSAGES,
            "context": message.context.to_json(),
            "body": message.body.data,
            "host_id": box.host.host_id,
            "service_id": service_id,
        },
    )
    box.connection.execute("VACUUM ANALYZE")
    box.connection.execute("CHECKPOINT")


def _measure_host(box: MeasuredBox, service_id: uuid.UUID) -> float:
    """Return messages/s of a host instance."""
    _fill_queue(box, service_id)
    settings = HostSettings(memory_queue=_IN_MEMORY, runs_jobs=False, heartbeat=timedelta(hours=1))
    with HostInstance(box.url, box.host.name, box.home, as_role=True, settings=settings) as instance:
        rate = _measure_rate(lambda: instance.counts["completed"])
    _check_result(box)
    return rate


def _measure_bare_loop(box: MeasuredBox, service_id: uuid.UUID) -> float:
    """Return messages/s of the bare loop."""
    _fill_queue(box, service_id)
    claims = [[uuid.uuid4() for _ in range(WARM_UP + MESSAGES)] for _ in range(_THREADS)]
    done = [0] * _THREADS

    def loop(number: int) -> None:
        with connect(box.url) as connection:
            for claim_id in claims[number]:
                rows = connection.execute(_CLAIM, (claim_id, _IN_MEMORY // _THREADS), binary=True).fetchall()
                if not rows:
                    break
                connection.execute(_COMPLETE, (claim_id, f"{{{','.join(str(row[0]) for row in rows)}}}"))
                done[number] += len(rows)

    threads = [threading.Thread(target=loop, args=(number,), daemon=True) for number in range(_THREADS)]
    for thread in threads:
        thread.start()
    rate = _measure_rate(lambda: sum(done))
    for thread in threads:
        thread.join()
    _check_result(box)
    return rate


def _measure_rate(done: Callable[[], int]) -> float:
    """Return messages/s after the warm-up (connections, plans, caches)."""
    while done() < WARM_UP:
        time.sleep(0.001)
    before, started = done(), time.perf_counter()
    while done() < WARM_UP + MESSAGES:
        time.sleep(0.005)  # a higher rate of polls would slow down the measured threads
    return (WARM_UP + MESSAGES - before) / (time.perf_counter() - started)


def _check_result(box: MeasuredBox) -> None:
    """Raise an error unless the queue is empty and every message and part is released."""
    left = box.one("SELECT count(*) FROM work_queue")
    released = box.one(
        "SELECT count(*) FROM (SELECT message_id FROM message_ref_count_log_1 GROUP BY 1 HAVING sum(delta) = 0"
        " UNION ALL SELECT part_id FROM part_ref_count_log_1 GROUP BY 1 HAVING sum(delta) = 0) r"
    )
    expected = 2 * (WARM_UP + MESSAGES)
    if (left, released) != (0, expected):
        raise RuntimeError(f"{left} rows are left and {released} of {expected} references were released")
