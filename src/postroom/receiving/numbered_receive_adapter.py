"""Receive adapters that claim first and receive later.

The process that serves a location claims what its source has, and gives each interchange a number in the MessageBox.
Workers of Spark get shares of these numbers, and ``poll`` returns a share. Without a share, an adapter claims by itself
when it is polled, as other adapters do: so the conformance tests of adapters run for it.
"""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from postroom.adapters.contract import Incoming, ReceiveAdapter
from postroom.messagebox.connection import Connection
from postroom.messagebox.intake.numbered_interchanges import find_last_number, read_numbered
from postroom.ports.receive_locations import ReceiveLocation


@dataclass(frozen=True, kw_only=True)
class Scan:
    """The result of one scan. ``active`` is False while another process claims for this location."""

    active: bool
    paused: bool = False
    """True while a backup copies the claimed files. The scan has done nothing."""
    claimed: int = 0
    settling: int = 0
    more: bool = False
    """True if there is more than may be claimed now. It waits until other interchanges are published."""
    problems: tuple[str, ...] = ()


class NumberedReceiveAdapter(ReceiveAdapter):
    """Receives the claimed interchanges of a location, over one connection. Used by one thread."""

    def __init__(
        self, connection: Connection, location: ReceiveLocation, *, share: Sequence[uuid.UUID] | None = None
    ) -> None:
        self._connection = connection
        self._location = location
        self._share = share

    @abstractmethod
    def scan(self) -> Scan:
        """Claim what the source has now, and number it. Nothing is claimed while another process serves the
        location."""

    def next_scan_in(self, longest: timedelta) -> timedelta:
        """Return the time until the next scan can find something, at most ``longest``."""
        return longest

    @abstractmethod
    def read(self, interchange_ids: Sequence[uuid.UUID]) -> Sequence[Incoming]:
        """Return those of the claimed interchanges that can be received now, in the order of their numbers."""

    def poll(self, limit: int) -> Sequence[Incoming]:
        if self._share is None:
            self.scan()
            last = find_last_number(self._connection, self._location.location_id, 0, limit)
            rows = read_numbered(self._connection, self._location.location_id, 0, last)
            return self.read([row.interchange_id for row in rows])
        batch: Sequence[Incoming] = ()
        while self._share and not batch:
            batch = self.read(self._share[:limit])
            self._share = self._share[limit:]
        return batch
