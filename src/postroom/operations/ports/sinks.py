"""List sinks, the send ports that Spark serves, with their progress."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from postroom.messagebox.configuration.endpoints import PortState
from postroom.messagebox.configuration.hosts import read_hosts
from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement
from postroom.messagebox.streams.sink_progress import SINKS_SERVED_LOCK, SinkState
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
    locked = {lock for (lock,) in connection.execute(statement("queries/held_locks"), (SINKS_SERVED_LOCK,))}
    served = {host.name for host in read_hosts(connection) if host.host_id in locked}
    reports = {
        port_id: report
        for port_id, *report in connection.execute(
            "SELECT port_id, state, since, batches, written, rate, last_batch_at, reason FROM messagebox.running_sinks"
        )
    }
    sinks = {port.port_id: port for port in read_send_ports(connection) if port.adapter_type.is_sink}
    found = []
    for listed in list_ports(connection):
        if listed.port_id not in sinks:
            continue
        unknown = [SinkState.WAITING.value, None, 0, 0, 0.0, None, None]
        state, since, batches, written, rate, last_batch_at, reason = reports.get(listed.port_id, unknown)
        if listed.host not in served:
            # The last report of a process that has ended is out of date.
            state, since, batches, written, rate, reason = "not running", None, None, None, None, None
        elif listed.state is not PortState.STARTED and state == SinkState.WAITING.value:
            state = listed.state.name.lower()
        found.append(
            SinkListing(
                sink=listed.name,
                port_id=listed.port_id,
                application=listed.application,
                host=listed.host,
                state=state,
                since=since,
                waiting=listed.waiting,
                retrying=listed.retrying,
                suspended=listed.suspended,
                batches=batches,
                written=written,
                rate=rate,
                last_batch_at=last_batch_at,
                reason=reason,
                guarantee=get_guarantee(sinks[listed.port_id]),
                uri=listed.uri,
            )
        )
    return found
