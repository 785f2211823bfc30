"""List how hosts are throttled, and override it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime

from postroom.errors import BadValue
from postroom.messagebox.audit import record_action
from postroom.messagebox.configuration.hosts import find_host, read_hosts
from postroom.messagebox.connection import Connection, operator_transaction
from postroom.messagebox.coordination.running_processes import change_routing, list_throttles
from postroom.messagebox.throttling.load import read_throttle, store_overrides
from postroom.throttling import Override, OverrideMode, Overrides
from postroom.throttling.states import ThrottleState

_MAX_SEVERITY = 1_000


@dataclass(frozen=True, kw_only=True)
class ThrottlingListing:
    """The throttling of a host in one direction.

    ``process`` is empty for programs and receive locations that publish for the host. They are throttled by the
    MessageBox. It names the process if the state is that of one process.
    """

    host: str
    direction: str
    process: str
    state: int
    description: str
    severity: float
    delay: float
    since: datetime | None
    reason: str
    override: str
    """auto; always, with its severity; never."""


def list_throttling(connection: Connection) -> list[ThrottlingListing]:
    """Return the publishing of every host, and what its running processes report, sorted by host."""
    processes = list_throttles(connection)
    listed = []
    for host in sorted(read_hosts(connection), key=lambda host: host.name):
        throttle = read_throttle(connection, host.host_id, None)
        listed.append(
            ThrottlingListing(
                host=host.name,
                direction="publishing",
                process="",
                state=0 if throttle is None else int(throttle.state),
                description=(ThrottleState.NONE if throttle is None else throttle.state).label,
                severity=0.0 if throttle is None else throttle.severity,
                delay=0.0 if throttle is None else throttle.delay,
                since=None,
                reason="" if throttle is None else throttle.reason,
                override=str(host.overrides.publishing),
            )
        )
        for process in processes:
            if process.host_id == host.host_id:
                overrides = {"publishing": host.overrides.publishing, "delivery": host.overrides.delivery}
                listed.append(
                    ThrottlingListing(
                        host=host.name,
                        direction=process.direction,
                        process=f"{process.pid} on {process.server}",
                        state=process.state,
                        description=ThrottleState(process.state).label,
                        severity=process.severity,
                        delay=process.delay,
                        since=process.since,
                        reason=process.reason,
                        override=str(overrides[process.direction]),
                    )
                )
    return listed


def set_override(
    connection: Connection,
    name: str,
    *,
    publishing: OverrideMode | None = None,
    delivery: OverrideMode | None = None,
    severity: int = 100,
) -> Overrides:
    """Override the throttling of a host (THR-08). Running processes take the change within a second. None leaves a
    direction as it is."""
    if not 1 <= severity <= _MAX_SEVERITY:
        raise BadValue(f"The severity is {severity}, but must be from 1 to {_MAX_SEVERITY:,}.")

    def work(connection: Connection) -> Overrides:
        change_routing(connection)
        host = find_host(connection, name)
        after = host.overrides
        if publishing is not None:
            after = replace(after, publishing=Override(mode=publishing, severity=severity))
        if delivery is not None:
            after = replace(after, delivery=Override(mode=delivery, severity=severity))
        store_overrides(connection, host.host_id, after)
        record_action(connection, "throttling.set", host.name, before=asdict(host.overrides), after=asdict(after))
        return after

    return operator_transaction(connection, work)
