"""The receive locations that a pipeline process serves, and the class that runs each of them."""

from __future__ import annotations

from postroom.clock import Clock, system_clock
from postroom.errors import DefinitionError
from postroom.messagebox.configuration import Host, ReceiveLocation, read_receive_locations
from postroom.messagebox.connection import Connection
from postroom.spark.bulk.row_stream import RunningRowStream
from postroom.spark.bulk.running_bulk_location import RunningBulkLocation
from postroom.spark.intake.intake import location_to_serve
from postroom.spark.receive.running_location import RunningLocation


def served_now(connection: Connection, host: Host, *, clock: Clock = system_clock) -> list[ReceiveLocation]:
    """Return the locations of a host that receive now, or that have something left to publish."""
    now = clock()
    known = read_receive_locations(connection, host_id=host.host_id)
    served = (location_to_serve(connection, one, now) for one in known)
    return [location for location in served if location is not None]


def served_by(location: ReceiveLocation) -> type[RunningLocation]:
    """Return the class that runs a receive location."""
    try:
        if location.adapter.is_row_stream:
            return RunningRowStream
        return RunningBulkLocation if location.adapter.reads_rows else RunningLocation
    except DefinitionError:
        # Its adapter cannot be loaded. The location reports that when it starts.
        return RunningLocation
