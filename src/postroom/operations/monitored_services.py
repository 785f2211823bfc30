"""The services of all hosts, for monitoring."""

from __future__ import annotations

from dataclasses import replace

from postroom.messagebox.configuration.hosts import read_hosts
from postroom.messagebox.connection import Connection
from postroom.messagebox.monitored_services import (
    LOCATION,
    RECEIVING,
    STARTING,
    MonitoredService,
    read_monitored_services,
)
from postroom.operations.ports.receive_locations import list_served_locations
from postroom.ports.receive_locations import ReceiveLocation


def list_monitored_services(connection: Connection) -> list[tuple[str, MonitoredService]]:
    """Return the services of all hosts, each with the name of its host. A location that no running process serves has
    no state, because the last report of a process that has ended is out of date."""
    served = {location.location_id: location for location in list_served_locations(connection)}
    return [
        (host.name, _correct_state(service, served.get(service.service_id)) if service.kind == LOCATION else service)
        for host in read_hosts(connection)
        for service in read_monitored_services(connection, host.name)
    ]


def _correct_state(service: MonitoredService, location: ReceiveLocation | None) -> MonitoredService:
    if location is None:
        return service if service.has_problem else replace(service, state=None, reason=None)
    state = service.state or (RECEIVING if location.is_two_way else STARTING)
    return replace(service, state=state, reason=f"receiving {location.uri}" if state == RECEIVING else service.reason)
