"""A streaming source of Spark over rows that the MessageBox numbers.

An offset is the number of a row. What was taken in, and what is still to be published, is in the MessageBox; Spark's
checkpoint only says which rows this run of the query has handed out.

Spark ends Python workers that had nothing to do for a minute, and the next row would wait seconds for new ones. So an
idle stream runs an empty batch now and then, and one at its start; the offset's second number counts these.
"""

# Spark calls the methods by these names.
# ruff: noqa: N802

from __future__ import annotations

import heapq
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

import psycopg
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from postroom.errors import Unavailable
from postroom.messagebox.connection import Connection
from postroom.messagebox.throttling import ThrottleWatch
from postroom.spark.login import Login

_WARM_SECONDS = 40.0

#: What a row costs beside its bytes, in bytes, so that many small ones spread as well as a few large ones.
_ROW_COST = 16_384


class Sized(Protocol):
    """A row, as far as it matters here."""

    @property
    def size(self) -> int: ...


Row = TypeVar("Row", bound=Sized)
T = TypeVar("T")


class RowsPartition(InputPartition, Generic[Row]):
    """The rows of one task."""

    def __init__(self, rows: Sequence[Row]) -> None:
        super().__init__(None)
        self.rows = tuple(rows)


class NumberedReader(DataSourceStreamReader, SupportsTriggerAvailableNow, Generic[Row]):
    """Runs in a process of its own beside the driver, where it asks the MessageBox, and in the tasks."""

    def __init__(
        self, *, login: Login, location_id: uuid.UUID, partitions: int, max_rows: int, host_id: int | None = None
    ) -> None:
        self._login = login
        self._location_id = location_id
        self._partitions = partitions
        self._max_rows = max_rows
        self._connection: Connection | None = None
        self._target: int | None = None
        self._warm_at = 0.0
        self._throttle = None if host_id is None else ThrottleWatch(host_id)
        self._batch_at = 0.0

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """As a source is told: ``url`` and ``user`` of the MessageBox, ``location`` (a receive location's id), ``host``
        (its host's number), ``partitions`` (at most so many tasks a batch), ``max_rows`` (at most so many rows)."""
        return cls(
            login=Login(url=options["url"], user=options.get("user")),
            location_id=uuid.UUID(options["location"]),
            partitions=int(options["partitions"]),
            max_rows=int(options["max_rows"]),
            host_id=int(options["host"]),
        )

    @abstractmethod
    def newest(self, connection: Connection, after: int, most: int | None) -> int:
        """The number that the next ``most`` rows after a number end with; ``after`` itself if there are none."""

    @abstractmethod
    def between(self, connection: Connection, after: int, last: int) -> Sequence[Row]:
        """The rows with numbers above ``after`` and up to ``last``, in order."""

    def initialOffset(self) -> dict[str, Any]:
        return {"number": 0, "warm_ups": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(self._max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ask(lambda connection: self.newest(connection, 0, None))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        after = int(start["number"])
        most = None if isinstance(limit, ReadAllAvailable) else self._max_rows
        try:
            number = self._ask(lambda connection: self._next(connection, after, most))
        except (psycopg.OperationalError, Unavailable):
            if self._target is not None:
                raise
            # The MessageBox is away, so nothing can be taken in or published. The stream asks again in a moment.
            return start
        if self._target is not None:
            return {**start, "number": max(after, min(number, self._target))}
        if number == after and time.monotonic() < self._warm_at:
            return start
        self._warm_at = time.monotonic() + _WARM_SECONDS
        return {"number": number, "warm_ups": start["warm_ups"] + (number == after)}

    def _next(self, connection: Connection, after: int, most: int | None) -> int:
        """The end of the next batch: fewer rows, and none for a while, as long as too much waits in the MessageBox."""
        number = self.newest(connection, after, most)
        if number == after or self._throttle is None or self._target is not None:
            return number
        throttle = self._throttle.current(connection)
        if throttle is not None:
            if time.monotonic() < self._batch_at + throttle.delay:
                return after
            number = self.newest(connection, after, throttle.rows(self._max_rows))
        self._batch_at = time.monotonic()
        return number

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        after, last = int(start["number"]), int(end["number"])
        found = self._ask(lambda connection: self.between(connection, after, last))
        shares = balanced(found, self._partitions)
        if not shares and start["warm_ups"] != end["warm_ups"]:
            shares = [[]] * self._partitions
        return [RowsPartition(rows) for rows in shares]

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, question: Callable[[Connection], T]) -> T:
        """Asks the MessageBox, once more over a new connection if the one that was kept has died."""
        if self._connection is not None:
            try:
                return question(self._connection)
            except psycopg.OperationalError:
                self.stop()
        self._connection = self._login.connect("stream")
        return question(self._connection)


def balanced(rows: Sequence[Row], parts: int) -> list[list[Row]]:
    """The rows in at most ``parts`` shares of about equal cost, each in the order of the numbers; none is empty."""
    shares: list[list[int]] = [[] for _ in range(min(parts, len(rows)))]
    loads = [(0, number) for number in range(len(shares))]
    # The largest first, each to whoever has the least: never more than a third worse than the best there is.
    for index in sorted(range(len(rows)), key=lambda index: -rows[index].size):
        load, number = heapq.heappop(loads)
        shares[number].append(index)
        heapq.heappush(loads, (load + rows[index].size + _ROW_COST, number))
    return [[rows[index] for index in sorted(share)] for share in shares]
