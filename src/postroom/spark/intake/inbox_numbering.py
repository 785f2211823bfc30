"""How a receive location takes in what adapters hand over: it numbers the rows of its inbox once they are committed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from postroom.clock import Clock, system_clock
from postroom.messagebox import inbox
from postroom.messagebox.configuration import ReceiveLocation
from postroom.messagebox.connection import Connection
from postroom.spark.intake.claims import Scan
from postroom.spark.intake.location_lock import LocationLock

#: At most so many rows in one transaction.
_AT_A_TIME = 5_000


class InboxNumbering:
    """Numbers the inbox of one location, as long as it is the only one to do so: it holds the location's lock."""

    def __init__(
        self,
        connection: Connection,
        location: ReceiveLocation,
        home: Path,
        clock: Clock = system_clock,
        *,
        most: int = _AT_A_TIME,
    ) -> None:
        self._connection = connection
        self._most = most
        self._location_id = location.location_id
        self._lock = LocationLock(connection, location.location_id)
        self._first = True

    def scan(self) -> Scan:
        """Hands what has come to the stream; the first time also what was put aside."""
        if not self._lock.is_held():
            return Scan(active=False)
        if self._first:
            inbox.try_again(self._connection, self._location_id)
            self._first = False
        claimed = inbox.give_numbers(self._connection, self._location_id, self._most)
        return Scan(active=True, claimed=claimed, more=claimed == self._most)

    def next_look(self, longest: timedelta) -> timedelta:
        """How long to wait before the next scan."""
        return longest

    def release(self) -> None:
        """Lets another process do it."""
        self._lock.release()
