"""Orchestrations that receive one message, send one and end, against bare transactions of the same row changes.

    python -m bench.orchestrations

Rounds are measured as those of delivery: all messages are in the queue, and no job runs. A transaction of the bare loop
has as many instances as one of the host. After the rounds the host runs with its jobs and with a host that delivers
what was sent, while messages are published, and the spool must not grow.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.host import host_process
from bench.messagebox import MeasuredBox, measured_box
from bench.ratios import Result, compute_ratio, measure_alternately
from postroom.application import load
from postroom.hosts import HostInstance, HostSettings
from postroom.message import Message
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import connect
from postroom.operations.deployment.apply import apply
from postroom.processes.garbage_collection import reduce_garbage_collection
from postroom.properties import Property

Kind = Property("Bench.Kind", str)
Key = Property("Bench.Key", str)

_INSTANCES, _WARM_UP, _BATCH, _THREADS = 10_000, 1_000, 100, 2
_SUSTAINED_SECONDS, _BACKLOG = 20.0, 2_000
_LOAD, _CLAIM, _CLAIMED, _END = (
    Path(__file__).with_name(f"orchestrations_{name}.sql").read_text() for name in ("load", "claim", "claimed", "end")
)
_HEAD = """
from postroom import Application, Message, Property, adapters
from postroom.orchestrations import Correlation, carried_state, continue_with, receive, send, step

Kind = Property("Bench.Kind", str)
Key = Property("Bench.Key", str)
Ticks = Correlation(Key, filter=Kind == "tick")
app = Application("processes")
app.host("Default")
app.host("Sender")
app.property(Kind, Key)
app.send_port("Out", adapters.Null(), host="Sender")
"""
_ECHO = """
@app.orchestration(activate=Kind == "order", host="Default")
async def echo(order: Message) -> None:
    await send(Message.of(order.data), to="Out")
"""


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """The box with its orchestration, and the ids that rows in its queues have."""

    box: MeasuredBox
    service_id: uuid.UUID
    subscription_id: int
    sender_id: int
    port: uuid.UUID

    def fill(self, count: int) -> None:
        """Add messages that activate instances."""
        message = Message.of(b"x" * 1000, promoted={Kind: "order"})
        assert message.body is not None
        self.box.connection.execute(
            _LOAD,
            {
                "count": count,
                "context": message.context.to_json(),
                "body": message.body.data,
                "host_id": self.box.host.host_id,
                "service_id": self.service_id,
                "subscription_id": self.subscription_id,
            },
        )

    def count_left(self) -> int:
        """Return the number of instances that have not ended, and of messages that have not activated one yet."""
        return int(
            str(
                self.box.one("SELECT (SELECT count(*) FROM default_q) + (SELECT count(*) FROM orchestration_instances)")
            )
        )


@contextmanager
def deployed_box(code: str) -> Iterator[MeasuredBox]:
    """Yield a MessageBox with an application of orchestrations, after imports, properties and a send port."""
    with measured_box(subscriptions=0) as box:
        file = box.home / "processes.py"
        file.write_text(_HEAD + code)
        apply(box.connection, load(file), home=box.home)
        yield box


def find_deployed(box: MeasuredBox) -> Deployed:
    row = box.connection.execute(
        "SELECT o.id, s.id, p.host_id, p.id FROM orchestrations o, subscriptions s, send_ports p"
        " WHERE s.service_id = o.id AND s.instance_id IS NULL AND s.removed_at IS NULL"
    ).fetchone()
    assert row is not None
    return Deployed(box=box, service_id=row[0], subscription_id=row[1], sender_id=row[2], port=row[3])


def measure() -> Result:
    """Return instances/s of the host over instances/s of the bare loop."""
    with deployed_box(_ECHO) as box:
        box.connection.execute(
            "UPDATE service_classes SET dequeue_threads = %s WHERE name = %s",
            (_THREADS, ServiceClass.ORCHESTRATIONS),
        )
        deployed = find_deployed(box)
        pairs = measure_alternately(
            lambda: _measure_round(deployed, lambda: _measure_host(deployed)),
            lambda: _measure_round(deployed, lambda: _measure_bare_loop(deployed)),
        )
        sustained, spool = _measure_sustained(deployed)
    ratio, spread = compute_ratio(pairs)
    ours, bare = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Result(
        name="orchestrations: one receive, one send, complete, against bare transactions of the same row changes",
        group="E",
        measured=ratio,
        bar=0.4,
        spread=spread,
        detail=f"{ours:,.0f} instances/s against {bare:,.0f}; with publisher, delivery and jobs {sustained:,.0f}"
        f" instances/s for {_SUSTAINED_SECONDS:.0f} s, the spool had {spool[0]:,} messages after a third of the time,"
        f" {spool[1]:,} after two thirds and {spool[2]:,} at the end",
    )


def _measure_round(deployed: Deployed, measure: Callable[[], float]) -> float:
    """Fill an empty MessageBox, measure, and check that every instance has sent its message and ended."""
    box = deployed.box
    box.empty()
    box.connection.execute("TRUNCATE orchestration_instances, orchestration_messages, orchestration_journal")
    deployed.fill(_WARM_UP + _INSTANCES)
    box.connection.execute("VACUUM ANALYZE")
    box.connection.execute("CHECKPOINT")
    rate = measure()
    sent = box.one("SELECT count(*) FROM sender_q")
    if deployed.count_left() or sent != _WARM_UP + _INSTANCES:
        raise RuntimeError(f"{deployed.count_left()} instances are left, and {sent} messages were sent")
    return rate


def _measure_host(deployed: Deployed) -> float:
    settings = HostSettings(memory_queue=_BATCH * _THREADS, runs_jobs=False)
    box = deployed.box
    with HostInstance(box.url, box.host.name, box.home, as_role=True, settings=settings) as instance:
        reduce_garbage_collection()  # as run_host does in a process of its own
        return _measure_rate(lambda: instance.orchestration_counts["completed"])


def _measure_bare_loop(deployed: Deployed) -> float:
    done = [0] * _THREADS

    def loop(number: int) -> None:
        with connect(deployed.box.url) as connection:
            while claimed := connection.execute(_CLAIM, {"limit": _BATCH}).fetchall():
                claim_id = uuid.uuid4()
                instances = [row[0] for row in claimed]
                rows = connection.execute(_CLAIMED, {"claim": claim_id, "instances": instances}, binary=True).fetchall()
                connection.execute(
                    _END,
                    {
                        "instances": instances,
                        "messages": [uuid.uuid4() for _ in rows],
                        "parts": [uuid.uuid4() for _ in rows],
                        "contexts": [row[2] for row in rows],
                        "bodies": [row[3] for row in rows],
                        "host_id": deployed.sender_id,
                        "port": deployed.port,
                    },
                )
                done[number] += len(rows)

    threads = [threading.Thread(target=loop, args=(number,), daemon=True) for number in range(_THREADS)]
    for thread in threads:
        thread.start()
    rate = _measure_rate(lambda: sum(done))
    for thread in threads:
        thread.join()
    return rate


def _measure_rate(done: Callable[[], int]) -> float:
    while done() < _WARM_UP:
        time.sleep(0.001)
    before, started = done(), time.perf_counter()
    while done() < _WARM_UP + _INSTANCES:
        time.sleep(0.005)
    return (done() - before) / (time.perf_counter() - started)


def _measure_sustained(deployed: Deployed) -> tuple[float, list[int]]:
    """Keep a backlog while two hosts run with their jobs. Return instances/s, and the size of the spool at times."""
    box = deployed.box
    box.empty()
    sizes: list[int] = []
    published = 0
    with host_process(box, "Default"), host_process(box, "Sender"):
        started = time.perf_counter()
        while (elapsed := time.perf_counter() - started) < _SUSTAINED_SECONDS:
            left = deployed.count_left()
            if left < _BACKLOG:
                deployed.fill(_BACKLOG)
                published += _BACKLOG
            if elapsed > _SUSTAINED_SECONDS * (len(sizes) + 1) / 3:
                sizes.append(_count_spool(box))
            time.sleep(0.02)
        rate = (published - deployed.count_left()) / (time.perf_counter() - started)
        sizes.append(_count_spool(box))
    return rate, sizes


def _count_spool(box: MeasuredBox) -> int:
    return int(str(box.one("SELECT count(*) FROM spool")))


if __name__ == "__main__":
    sys.stdout.write(f"{measure()}\n")
