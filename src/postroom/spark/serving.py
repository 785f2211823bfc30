"""Which receive locations a pipeline process serves, and what runs each of them."""

from __future__ import annotations

from postroom.clock import Clock, system_clock
from postroom.errors import PostroomError
from postroom.messagebox.configuration import Host, ReceiveLocation, receive_locations
from postroom.messagebox.connection import Connection
from postroom.spark.bulk.running_bulk import RunningBulk
from postroom.spark.bulk.running_row_stream import RunningRowStream
from postroom.spark.intake.taking_in import is_row_stream, to_serve
from postroom.spark.receive.running_location import RunningLocation

#: What runs a receive location, by the kind of its adapter.
SERVED: dict[str, type[RunningLocation]] = {
    "file": RunningLocation,
    "http_receive": RunningLocation,
    "spark_reader": RunningBulk,  # or RunningRowStream
}


def served_now(connection: Connection, host: Host, *, clock: Clock = system_clock) -> list[ReceiveLocation]:
    """The locations of a host that take in something now, or have something left to publish."""
    now = clock()
    known = receive_locations(connection, host_id=host.host_id)
    served = (to_serve(connection, one, now) for one in known if one.adapter["kind"] in SERVED)
    return [location for location in served if location is not None]


def served_by(location: ReceiveLocation) -> type[RunningLocation]:
    try:
        return RunningRowStream if is_row_stream(location) else SERVED[location.adapter["kind"]]
    except PostroomError:
        # Its adapter cannot be loaded. It fails when it takes in, and tells of it there.
        return RunningLocation
