"""Processes that freeze (SIGSTOP) at a given point of their work, and do not continue."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from postroom.adapters.null import NullSender
from postroom.agent import publish
from postroom.agent.direct.direct_agent import DirectAgent
from postroom.agent.direct.direct_batch import DirectBatch
from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.document_batch import DocumentBatch
from postroom.agent.streaming.receiver import Receiver
from postroom.hosts import run_host
from postroom.hosts.registration import Registration
from postroom.message import Message
from postroom.messagebox.configuration.hosts import read_hosts
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.maintenance import jobs
from postroom.messagebox.queues import HostQueues
from postroom.messagebox.sinks import sink_batches
from postroom.messagebox.sinks.sink_batches import SinkQueue
from postroom.messagebox.storage import copy_rows
from postroom.operations.ports import send_ports, states
from postroom.ports.receive_locations import read_receive_locations
from postroom.spark.sinks.drain import Drain
from tests.support.box import Box, Region, interchange, open_box
from tests.support.interrupted_process import interrupt_after, interrupt_before
from tests.support.sinks import InProcessWriter, make_drain, read_port_id
from tests.support.waiting import PATIENCE

KEY = "frozen"
INTERCHANGE = uuid.UUID("7b7c1f0c-6b5e-4b0c-9a53-2f7b6f2f9d11")
FEW, MANY = 3, 50
#: The bounds in seconds: for everything that a frozen process does not serve, for the claims of a frozen host, and for
#: the receive locations and sinks of a frozen pipeline.
OTHERS_CONTINUE, CLAIMS_ARE_TAKEN_OVER, PIPELINES_ARE_REPLACED = 5.0, 10.0, 30.0


def allow(seconds: float) -> float:
    """Return the time that a test allows for something that takes ``seconds`` at most. `make faults` checks these
    bounds, with a factor for a busy machine."""
    return 2 * seconds if os.environ.get("CHECK_BOUNDS") else PATIENCE


def messages(count: int) -> list[Message]:
    return [Message.of(b"frozen %d" % number, promoted={Region: "EU"}) for number in range(count)]


def publish_few(connection: Connection) -> None:
    _publish(connection, FEW)


def publish_many(connection: Connection) -> None:
    _publish(connection, MANY)


def _publish(connection: Connection, count: int) -> None:
    [host] = read_hosts(connection)
    DirectAgent(connection, host, RoutingTable()).publish(messages(count), key=KEY)


def receive(connection: Connection) -> None:
    [location] = read_receive_locations(connection)
    lines = b"\n".join(b'{"region": "EU", "total": 1, "priority": %d}' % number for number in range(MANY))
    Receiver(connection, RoutingTable()).receive(location, [interchange(lines, INTERCHANGE)])


def start_port(connection: Connection) -> None:
    send_ports.start(connection, "Other")


def run_jobs(connection: Connection) -> None:
    jobs.run_all_jobs_once(connection)


#: The number of messages that each publisher publishes.
PUBLISHED: dict[Callable[[Connection], None] | None, int] = {publish_few: FEW, publish_many: MANY, receive: MANY}


@dataclass(frozen=True, kw_only=True)
class Point:
    """A point at which a process freezes: what it does, and the function that freezes it."""

    work: Callable[[Connection], None] | None
    """None if the process is a host."""
    owner: Any
    function: str
    before: bool = False

    def patch(self) -> None:
        function = getattr(self.owner, self.function)
        setattr(self.owner, self.function, interrupt_before(function) if self.before else interrupt_after(function))


POINTS = {
    "direct lane: after the receipts": Point(work=publish_many, owner=DirectBatch, function="prepare"),
    "direct lane: after matching": Point(work=publish_many, owner=DirectBatch, function="match"),
    "direct lane: after the statement": Point(work=publish_few, owner=DirectBatch, function="insert_in_one_statement"),
    "direct lane: after the messages": Point(work=publish_many, owner=DirectBatch, function="write_messages"),
    "direct lane: in a COPY": Point(work=publish_many, owner=copy_rows._FlushingWriter, function="write"),
    "direct lane: with the routing lock": Point(work=publish_many, owner=publish, function="lock_routing"),
    "direct lane: before the commit": Point(work=publish_many, owner=DirectBatch, function="write_routes"),
    "streaming lane: after matching": Point(work=receive, owner=DocumentBatch, function="match"),
    "streaming lane: after the receipts": Point(work=receive, owner=DocumentBatch, function="insert_receipts"),
    "streaming lane: in a COPY": Point(work=receive, owner=copy_rows._FlushingWriter, function="write"),
    "streaming lane: after the messages": Point(work=receive, owner=DocumentBatch, function="write_messages"),
    "streaming lane: with the routing lock": Point(work=receive, owner=publish, function="lock_routing"),
    "streaming lane: before the commit": Point(work=receive, owner=DocumentBatch, function="write_routes"),
    "operator: with the routing lock": Point(work=start_port, owner=states, function="check_transition"),
    "jobs: between two jobs": Point(work=run_jobs, owner=jobs, function="_run"),
    "jobs: inside a job": Point(work=run_jobs, owner=jobs, function="read_value"),
    "host: after a claim": Point(work=None, owner=HostQueues, function="dequeue"),
    "host: during a send": Point(work=None, owner=NullSender, function="send", before=True),
    "host: before the outcomes are committed": Point(work=None, owner=HostQueues, function="complete_claims"),
    "host: while it waits for messages": Point(work=None, owner=Registration, function="_watch"),
}


def main(url: str, home: str, name: str) -> None:
    """Freeze at the point with this name."""
    point = POINTS[name]
    if point.work is None:
        point.patch()
        run_host(url, "Default", Path(home), as_role=True)
    else:
        with connect(url, application_name="postroom host Default") as connection:
            point.patch()
            point.work(connection)


#: The points at which a process freezes that drains a sink.
SINK_POINTS = {
    "after the lock": Point(work=None, owner=sink_batches, function="lock_sink"),
    "after the batch is opened": Point(work=None, owner=SinkQueue, function="open_batch"),
    "before the batch is written": Point(work=None, owner=InProcessWriter, function="write", before=True),
    "after the batch is written": Point(work=None, owner=InProcessWriter, function="write"),
    "inside the transaction that completes the batch": Point(work=None, owner=SinkQueue, function="_end"),
    "after the batch is completed": Point(work=None, owner=SinkQueue, function="complete"),
}


def drain_sink(url: str, home: str, name: str) -> None:
    """Drain the sink of the MessageBox, and freeze at the point with this name."""
    with open_box(url) as box:
        SINK_POINTS[name].patch()
        drain_if_free(box, make_drain(box, Path(home)))


def drain_if_free(box: Box, drain: Drain) -> bool:
    """Drain the sink of the MessageBox as a pipeline process does. Return False if another process drains it."""
    port_id = read_port_id(box)
    with connect(box.url, user=box.host().role_name, application_name="postroom sink") as connection:
        if not sink_batches.lock_sink(connection, port_id):
            return False
        while drain.drain_once(connection, port_id) is not None:
            pass
        return True
