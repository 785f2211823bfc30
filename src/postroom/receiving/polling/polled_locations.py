"""The receive locations of a host whose adapters it polls: one thread for each."""

from __future__ import annotations

import logging
import time
import uuid
from pathlib import Path

from postroom.agent.routing.table import RoutingTable
from postroom.clock import Clock, system_clock
from postroom.messagebox.connection import Connect
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.polling.polled_location import PolledLocation

_log = logging.getLogger(__name__)

#: How long the batch of a location that has changed may take before other locations are served.
_STOP_SECONDS = 5.0


class PolledLocations:
    """Starts and stops the locations of a host as they are deployed."""

    def __init__(self, *, connect: Connect, home: Path, routing: RoutingTable, clock: Clock = system_clock) -> None:
        self._connect = connect
        self._home = home
        self._routing = routing
        self._clock = clock
        self._running: dict[uuid.UUID, PolledLocation] = {}
        self._stopping: list[PolledLocation] = []
        self._problems: dict[uuid.UUID, str] = {}

    @property
    def locations(self) -> list[PolledLocation]:
        """The locations that are served, or wait until another process releases them."""
        return list(self._running.values())

    @property
    def problems(self) -> list[str]:
        """The problems that keep the host from receiving."""
        failures = [
            f"{running.location.name}: {running.failure}" for running in self.locations if running.failure is not None
        ]
        return [*self._problems.values(), *failures]

    def serve(self, deployed: list[ReceiveLocation]) -> bool:
        """Serve these locations from now on. Return False if a location that has changed is still in its last batch."""
        wanted = {location.location_id: location for location in deployed if location.enabled}
        self._problems = {known: problem for known, problem in self._problems.items() if known in wanted}
        for location_id, running in list(self._running.items()):
            if wanted.get(location_id) != running.location:
                running.loop.stop()
                self._stopping.append(self._running.pop(location_id))
        self._end_stopping(_STOP_SECONDS)
        unfinished = {stopping.location.location_id for stopping in self._stopping}
        for location_id, location in wanted.items():
            if location_id not in self._running and location_id not in unfinished:
                self._start(location)
        return not self._stopping

    def close(self, within: float) -> None:
        """Stop all locations after their current batches."""
        for running in self._running.values():
            running.loop.stop()
        self._stopping += self._running.values()
        self._running.clear()
        self._end_stopping(within)

    def _start(self, location: ReceiveLocation) -> None:
        try:
            running = PolledLocation(
                location, connect=self._connect, home=self._home, routing=self._routing, clock=self._clock
            )
        except Exception as error:  # the adapter of a package can raise anything
            problem = f"{location.name} cannot be started: {' '.join(str(error).split()) or type(error).__name__}"
            if self._problems.get(location.location_id) != problem:
                _log.warning("%s", problem)
            self._problems[location.location_id] = problem
            return
        self._problems.pop(location.location_id, None)
        running.loop.start()
        self._running[location.location_id] = running

    def _end_stopping(self, within: float) -> None:
        deadline = time.monotonic() + within
        for stopping in self._stopping.copy():
            if stopping.loop.join(max(0.0, deadline - time.monotonic())):
                stopping.close()
                self._stopping.remove(stopping)
                _log.info("%s: no longer receiving", stopping.location.name)
