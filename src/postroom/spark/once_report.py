"""The progress of a receive location in `postroom pipeline run --once`, for `postroom pipeline show`."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from postroom.clock import Clock, system_clock
from postroom.errors import PostroomError
from postroom.messagebox.connection import Connection
from postroom.messagebox.streams.location_progress import LocationProgress, LocationReport, Rate
from postroom.spark.bulk.progress import BulkProgress


class OnceReport:
    """Reports the progress of one location over several rounds of publishing. Used by one thread."""

    def __init__(self, connection: Connection, location_id: uuid.UUID, *, clock: Clock = system_clock) -> None:
        self._connection = connection
        self._clock = clock
        self._report = LocationReport()
        self._progress = LocationProgress(location_id=location_id)
        self._rate = Rate()
        self._earlier: Counter[str] = Counter()

    def start_round(self) -> None:
        """Report the start of a round."""
        self._store(self._progress)

    def report_bulk(self, progress: BulkProgress) -> None:
        """Report the progress of the bulk files of all rounds."""
        published = progress.rows - progress.bad - self._earlier["published"]
        suspended = progress.bad - self._earlier["suspended"]
        self._count(published, suspended, rate=round(progress.rate), bytes_left=progress.bytes_left)

    def report_stream(self, counts: Mapping[str, int]) -> None:
        """Report what the stream of this round has published so far."""
        published = counts.get("published", 0)
        self._rate.add(self._earlier["published"] + published - self._progress.rows)
        self._count(published, counts.get("suspended", 0), rate=self._rate.per_second())

    def end_round(self, counts: Mapping[str, int]) -> None:
        """Add the final counts of this round."""
        self._count(counts.get("published", 0), counts.get("suspended", 0), rate=self._progress.rate)
        self._earlier.update(counts)

    def end(self) -> None:
        with suppress(PostroomError):
            self._report.delete(self._connection, self._progress.location_id)

    def _count(self, published: int, suspended: int, *, rate: float, bytes_left: int | None = None) -> None:
        # The counts of a reading may be more than the final ones, which know the rows without a subscriber.
        rows = max(self._progress.rows, self._earlier["published"] + published)
        suspended = max(self._progress.suspended, self._earlier["suspended"] + suspended)
        progress = replace(self._progress, rows=rows, suspended=suspended, rate=rate)
        if rows != self._progress.rows:
            progress = replace(progress, last_batch_at=self._clock())
        if bytes_left is not None:
            progress = replace(progress, remaining=bytes_left, remaining_unit="bytes")
        self._store(progress)

    def _store(self, progress: LocationProgress) -> None:
        self._progress = progress
        with suppress(PostroomError):  # the next statement that needs the connection reports it
            self._report.store(self._connection, progress)
