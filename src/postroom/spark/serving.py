"""Which receive locations a pipeline process serves, and what runs each of them."""

from __future__ import annotations

from postroom.clock import Clock, system_clock
from postroom.errors import DefinitionError
from postroom.messagebox.configuration import Host, ReceiveLocation, receive_locations
from postroom.messagebox.connection import Connection
from postroom.spark.bulk.running_bulk import RunningBulk
from postroom.spark.bulk.running_row_stream import RunningRowStream
from postroom.spark.intake.taking_in import to_serve
from postroom.spark.receive.running_location import RunningLocation


def served_now(connection: Connection, host: Host, *, clock: Clock = system_clock) -> list[ReceiveLocation]:
    """The locations of a host that take in something now, or have something left to publish."""
    now = clock()
    known = receive_locations(connection, host_id=host.host_id)
    served = (to_serve(connection, one, now) for one in known)
    return [location for location in served if location is not None]


def served_by(location: ReceiveLocation) -> type[RunningLocation]:
    """Return what runs a receive location."""
    try:
        if location.adapter.is_row_stream:
            return RunningRowStream
        return RunningBulk if location.adapter.reads_rows else RunningLocation
    except DefinitionError:
        # Its adapter cannot be loaded. It fails when it takes in, and tells of it there.
        return RunningLocation
