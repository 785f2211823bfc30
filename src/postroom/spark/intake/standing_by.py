"""What stands before a stream that Spark itself remembers: nothing but the question whose it is."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from postroom.clock import Clock, system_clock
from postroom.messagebox.configuration import ReceiveLocation
from postroom.messagebox.connection import Connection
from postroom.spark.intake.claims import Scan
from postroom.spark.intake.location_lock import LocationLock


class StandingBy:
    """Takes nothing in. Only one process may read the stream: it holds the location's lock."""

    def __init__(
        self, connection: Connection, location: ReceiveLocation, home: Path, clock: Clock = system_clock
    ) -> None:
        self._lock = LocationLock(connection, location.location_id)

    def scan(self) -> Scan:
        return Scan(active=self._lock.is_held())

    def next_look(self, longest: timedelta) -> timedelta:
        return longest

    def release(self) -> None:
        self._lock.release()
