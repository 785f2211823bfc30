"""List sinks, the send ports that Spark serves, with their progress."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from postroom.messagebox.configuration.hosts import read_hosts
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import Connection
from postroom.messagebox.coordination.running_processes import list_running_processes
from postroom.messagebox.sinks.sink_progress import (
    ReportedSink,
    SinkState,
    read_reported_sinks,
    read_served_hosts,
)
from postroom.operations.ports.send_ports import get_guarantee, list_ports
from postroom.ports.send_ports import read_send_ports


@dataclass(frozen=True, kw_only=True)
class SinkListing:
    """A sink with the last report of the process that serves it."""

    sink: str
    port_id: uuid.UUID
    application: str
    host: str
    state: str
    """not running (no process serves the sinks of its host); stopped or bound, like the port; waiting, writing or
    failing."""
    since: datetime | None
    """When the state began. None if no process serves the sink."""
    waiting: int
    retrying: int
    suspended: int
    batches: int | None
    """The number of batches since the process was started. None if no process serves the sink."""
    written: int | None
    """The number of messages since the process was started. None if no process serves the sink."""
    rate: float | None
    """Messages per second of the last batch. None if no process serves the sink."""
    last_batch_at: datetime | None
    reason: str | None
    """Why it is failing."""
    guarantee: str | None
    """The delivery guarantee. None if the login may not read the port's configuration."""
    uri: str


def list_sinks(connection: Connection) -> list[SinkListing]:
    """Return every sink, sorted by name."""
    locked = read_served_hosts(connection)
    served = {host.name for host in read_hosts(connection) if host.host_id in locked}
    reports = read_reported_sinks(connection)
    sinks = {port.port_id: port for port in read_send_ports(connection) if port.is_sink}
    processes = {(process.server, process.pid) for process in list_running_processes(connection)}
    found = []
    for listed in list_ports(connection):
        if listed.port_id not in sinks:
            continue
        report = reports.get(listed.port_id, ReportedSink())
        if (report.server, report.pid) not in processes:
            # The last report of a process that has ended is out of date.
            report = ReportedSink(last_batch_at=report.last_batch_at)
        is_served = listed.host in served
        state = report.state.value if is_served else "not running"
        if is_served and listed.state is not ServiceState.STARTED and report.state is SinkState.WAITING:
            state = listed.state.name.lower()
        found.append(
            SinkListing(
                sink=listed.name,
                port_id=listed.port_id,
                application=listed.application,
                host=listed.host,
                state=state,
                since=report.since if is_served else None,
                waiting=listed.waiting,
                retrying=listed.retrying,
                suspended=listed.suspended,
                batches=report.batches if is_served else None,
                written=report.written if is_served else None,
                rate=report.rate if is_served else None,
                last_batch_at=report.last_batch_at,
                reason=report.reason if is_served else None,
                guarantee=get_guarantee(sinks[listed.port_id]),
                uri=listed.uri,
            )
        )
    return found
