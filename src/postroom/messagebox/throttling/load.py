"""The load of the MessageBox, and the throttle of the publishers of a host.

    throttle = read_throttle(connection, host_id, location_id)
    if throttle is not None:
        ...                          # wait throttle.delay seconds, receive at most throttle.rows(1_000)

Streams check the throttle between two batches, HTTP locations before they accept a request, and programs before they
publish. The check is cheap: the load is measured from counters, at most once a second in the whole MessageBox. The
suspended rows of a receive location slow down this location alone, and those of programs only programs.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from psycopg.types.json import Jsonb

from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement
from postroom.throttling import Override, Overrides, Throttling, load_overrides, load_throttling
from postroom.throttling.rates import get_rate_limit
from postroom.throttling.states import Limit, Throttle, ThrottleState, apply_override, find_throttle

#: How long a measured load is used, in seconds.
CHECK_INTERVAL = 1.0

#: Measures the process of a publisher, and returns the limits that the thresholds of its host set.
FindProcessLimits = Callable[[Throttling], Sequence[Limit]]


@dataclass(frozen=True, kw_only=True)
class Load:
    """The load of the MessageBox, with the thresholds and the override of a host."""

    queued: int
    spooled: int
    suspended: Mapping[str, int] = field(default_factory=dict)
    """Rows of messages that could not be received or published, by receive location. ``queued`` contains them. The key
    of programs is empty, and that of routing failure reports is ``reports``."""
    incoming: int = 0
    """Rows that came into the queues in the last complete window."""
    outgoing: int = 0
    """Rows that left the queues in the last complete window."""
    sessions: int = 0
    throttling: Throttling
    override: Override = field(default_factory=Override)

    def get_throttle(self, location_id: uuid.UUID | None, process_limits: Sequence[Limit] = ()) -> Throttle | None:
        """Return the throttle of a receive location, or of programs (None). Return None if they are not throttled.
        Suspended rows of others do not count."""
        own = "" if location_id is None else str(location_id)
        others = sum(count for location, count in self.suspended.items() if location != own)
        limits = [*self._find_limits(self.queued - others, self.spooled - others), *process_limits]
        longest = self.throttling.longest_delay
        throttle = find_throttle(limits, longest_delay=longest)
        return apply_override(throttle, self.override, state=ThrottleState.PUBLISHING_OVERRIDE, longest_delay=longest)

    def _find_limits(self, queued: int, spooled: int) -> list[Limit]:
        thresholds, size = self.throttling, ThrottleState.DATABASE_SIZE
        spool = round(thresholds.messages * thresholds.spool_multiplier)
        limits = [
            Limit(state=size, value=queued, threshold=thresholds.messages, what="messages are in the queues"),
            Limit(state=size, value=spooled, threshold=spool, what="messages are in the spool"),
            Limit(
                state=ThrottleState.DATABASE_SESSIONS,
                value=self.sessions,
                threshold=thresholds.sessions,
                what="sessions use the database",
            ),
        ]
        # The MessageBox is there to absorb bursts. Only a backlog that becomes large is a reason to delay publishers.
        if thresholds.messages and queued > thresholds.messages / 2:
            limits.append(
                get_rate_limit(
                    ThrottleState.PUBLISHING_RATE,
                    self.incoming,
                    self.outgoing,
                    overdrive=thresholds.overdrive,
                    what="messages came into the queues",
                )
            )
        return limits


def read_load(connection: Connection, host_id: int) -> Load | None:
    """Return the load for a host, at most a few seconds old. Return None if the host does not exist any more."""
    row = connection.execute(statement("queries/read_throttling"), (host_id,)).fetchone()
    if row is None:
        return None
    queued, spooled, suspended, incoming, outgoing, sessions, throttling, overrides = row
    return Load(
        queued=queued,
        spooled=spooled,
        suspended=suspended,
        incoming=incoming,
        outgoing=outgoing,
        sessions=sessions,
        throttling=load_throttling(throttling),
        override=load_overrides(overrides).publishing,
    )


def measure_tables(connection: Connection) -> dict[str, int]:
    """Return the bytes on disk by content."""
    return dict(connection.execute("SELECT content, bytes FROM measure_tables()").fetchall())


def read_throttle(connection: Connection, host_id: int, location_id: uuid.UUID | None) -> Throttle | None:
    """Return the current throttle of a receive location, or of programs (None)."""
    load = read_load(connection, host_id)
    return None if load is None else load.get_throttle(location_id)


def store_overrides(connection: Connection, host_id: int, overrides: Overrides) -> None:
    """Store the overrides of the throttling of a host."""
    connection.execute(
        "UPDATE messagebox.hosts SET throttling_overrides = %s WHERE id = %s", (Jsonb(asdict(overrides)), host_id)
    )


class ThrottleWatch:
    """Caches the load for a host for a second. ``find_process_limits`` adds the limits of this process."""

    def __init__(self, host_id: int, find_process_limits: FindProcessLimits = lambda _: ()) -> None:
        self._host_id = host_id
        self._find_process_limits = find_process_limits
        self._load: Load | None = None
        self._process_limits: Sequence[Limit] = ()
        self._check_at = 0.0

    def is_due(self) -> bool:
        """Return True if ``current`` would query the MessageBox."""
        return time.monotonic() >= self._check_at

    def current(self, connection: Connection, location_id: uuid.UUID | None) -> Throttle | None:
        """Return the current throttle of a receive location, or of programs (None)."""
        if self.is_due():
            load = read_load(connection, self._host_id)
            self._process_limits = () if load is None else self._find_process_limits(load.throttling)
            self._load = load
            self._check_at = time.monotonic() + CHECK_INTERVAL
        return self.get_last(location_id)

    def get_last(self, location_id: uuid.UUID | None) -> Throttle | None:
        """Return the throttle of a receive location, or of programs (None), at the last check."""
        load = self._load
        return None if load is None else load.get_throttle(location_id, self._process_limits)
