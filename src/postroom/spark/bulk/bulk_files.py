"""Publish the claimed files of a bulk location with Spark jobs. A job reads several files, and a task one split.

The files are removed when their job has published all splits. After a crash the file claims are still there, and the
next job finds by the receipts which rows are not published.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from postroom.errors import Fault, PostroomError
from postroom.messagebox.connection import Connection, Login
from postroom.messagebox.intake import file_claims
from postroom.messagebox.intake.file_claims import FileClaim, FileClaimState
from postroom.messagebox.intake.numbered_interchanges import read_numbered
from postroom.messagebox.intake.splits import read_row_counts
from postroom.messagebox.storage.receipts import Receipt, read_progress, take_receipts
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.files.claimed_files import finish_files, is_unchanged
from postroom.spark.bulk.read_plan import ReadPlan, clone_session, read_files, rows_pipeline, rows_reader
from postroom.spark.bulk.row_lines import TextEncoding
from postroom.spark.bulk.task import TALLY_SPARK_SCHEMA, BulkTask
from postroom.spark.error_reasons import find_fault, format_reason

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

_log = logging.getLogger(__name__)

#: Limits of a job. No file is removed before all files of its job are published.
_MAX_FILES, _MAX_BYTES = 500, 256 << 20

#: The scheduler pool of bulk jobs, so that the small batches of other locations do not wait for them.
_POOL = "bulk"
#: The names of the counts.
COUNTED = ("files", "rows", "bad", "published", "suspended", "routed", "empty")


class BulkFiles:
    """Publishes the claimed files of a location. ``cancel`` may be called while ``receive`` blocks. With ``paced``,
    tasks slow down while too many messages wait in the MessageBox."""

    def __init__(
        self, session: SparkSession, location: ReceiveLocation, *, login: Login, home: Path, paced: bool = True
    ) -> None:
        self.location = location
        self._rows = RowCounts()
        #: The counts since the start, by the names in COUNTED.
        self.counts = self._rows.counts
        #: The file with too many bad rows, after which nothing more is read, and why.
        self.stopped_by = ""
        self._session = session
        self._reader = rows_reader(location)
        self._login = login
        self._paced = paced
        watched = self._reader.watched_folder
        assert watched is not None, "rows of a stream are received by RunningRowStream"
        self._folder = watched.folder(home)
        self._archive = watched.archive_folder(home)
        self._tag = f"postroom-{uuid.uuid4()}"
        self._cancelled = threading.Event()
        #: True while a job runs.
        self.is_busy = False

    def receive(self, connection: Connection) -> bool:
        """Run the next job. Return False if there is nothing to read. Raise errors that are not caused by a file."""
        if self.stopped_by:
            return False
        group = self._select_group(connection)
        if group:
            self.is_busy = True
            try:
                planned = self._store_plan(connection, group)
                if planned:  # otherwise another process reads them, or they were reset
                    self._publish(connection, planned)
            finally:
                self.is_busy = False
        return bool(group)

    def cancel(self) -> None:
        """Cancel the running job, and start no other."""
        self._cancelled.set()
        # The job may not have started, or Spark may have died.
        self._session.sparkContext.cancelJobsWithTag(self._tag)

    # -- choosing ----------------------------------------------------------------------------------------------

    def _select_group(self, connection: Connection) -> list[FileClaim]:
        """Return files with the same read plan: those of an interrupted job, or new ones."""
        numbered = read_numbered(connection, self.location.location_id, 0, 2**63 - 1)
        if not numbered:
            return []
        claims = file_claims.read_claims(connection, [row.interchange_id for row in numbered])
        waiting = self._select_ready(connection, claims)
        group: list[FileClaim] = []
        size = 0
        for claim in waiting:
            if _plan(claim) == _plan(waiting[0]) and (not group or size + claim.size <= _MAX_BYTES):
                group.append(claim)
                size += claim.size
        return group[:_MAX_FILES]

    def _select_ready(self, connection: Connection, claims: Sequence[FileClaim]) -> list[FileClaim]:
        """Return the files that have not changed and are not completely published. Finish or quarantine the others."""
        ids = [claim.interchange_id for claim in claims]
        progress = read_progress(connection, ids) if ids else {}
        done = {interchange_id for interchange_id, receipts in progress.items() if receipts.done}
        self._finish(connection, [claim for claim in claims if claim.interchange_id in done])
        ready = []
        for claim in claims:
            if claim.interchange_id in done:
                continue
            try:
                unchanged = is_unchanged(claim)
            except FileNotFoundError:
                self._store_problem(
                    connection, claim, FileClaimState.MISSING, "was removed by another process before it was published."
                )
                continue
            if claim.reading is None and not unchanged:
                file_claims.reset_claims(connection, [claim.interchange_id])
            elif claim.reading is not None and not (unchanged and _has_planned_size(claim)):
                # Published rows cannot be distinguished from new ones any more.
                problem = f"was written to after a part of it was published. It is kept as {claim.path}."
                self._store_problem(connection, claim, FileClaimState.FAILED, problem)
            else:
                ready.append(claim)
        return ready

    def _store_problem(self, connection: Connection, claim: FileClaim, state: FileClaimState, problem: str) -> None:
        file_claims.store_problem(connection, claim, state, problem)
        _log.warning("%s: %s %s", self.location.name, claim.name, problem, extra=claim.log_ids)

    # -- publishing --------------------------------------------------------------------------------------------

    def _publish(self, connection: Connection, group: Sequence[FileClaim]) -> None:
        self._rows.start(connection, [claim.interchange_id for claim in group])
        try:
            tallies = self._run(group)
        except Exception as error:
            with suppress(PostroomError):
                for claim in group:
                    self._rows.catch_up(connection, claim.interchange_id)
            if self._cancelled.is_set() or find_fault(error) is Fault.ENVIRONMENT:
                raise
            if len(group) > 1:
                # One of the files causes the failure. The others must not wait for it.
                for claim in group:
                    self._publish(connection, [claim])
                return
            self._store_problem(
                connection, group[0], FileClaimState.FAILED, file_claims.format_problem(group[0], format_reason(error))
            )
            return
        if tallies is not None:
            self._finish_job(connection, group, tallies)

    def _store_plan(self, connection: Connection, group: Sequence[FileClaim]) -> list[FileClaim]:
        """Return the files with their stored read plan."""
        if group[0].reading is not None:
            return list(group)
        plan = ReadPlan.create(self._session, self.location, group)
        return file_claims.store_read_plan(connection, group, plan.to_stored())

    def _run(self, group: Sequence[FileClaim]) -> list[Row] | None:
        """Run the job. Return None if nothing was read, because a file has changed."""
        from postroom.spark.session import without_pandas_warning

        stored = _plan(group[0])
        assert stored is not None
        plan = ReadPlan(**stored)
        location = plan.apply_to(self.location)
        task = BulkTask(
            login=self._login,
            location=location,
            origins={claim.interchange_id: str(self._folder / claim.name) for claim in group},
            paths={claim.interchange_id: claim.path for claim in group},
            encoding=TextEncoding.from_options(plan.format, plan.options, rows_pipeline(location)),
            paced=self._paced,
        )
        context = self._session.sparkContext
        context.setLocalProperty("spark.scheduler.pool", _POOL)
        context.addJobTag(self._tag)
        try:
            with without_pandas_warning():
                session = clone_session(self._session, plan.settings)
                # Generated code is faster for millions of rows. The session has it off, for the receive stream.
                session.conf.set("spark.sql.codegen.wholeStage", "true")
                paths = [str(claim.path) for claim in group]
                rows = read_files(session, plan, rows_pipeline(location), paths)
                # Spark has listed the files by their paths. Nothing is read if one of them was replaced since.
                if not all(is_unchanged(claim) for claim in group):
                    return None
                # One row per split: the messages do not pass through the driver.
                return rows.mapInArrow(task, TALLY_SPARK_SCHEMA).collect()
        finally:
            context.removeJobTag(self._tag)

    def _finish_job(self, connection: Connection, group: Sequence[FileClaim], tallies: Sequence[Row]) -> None:
        """Finish the files whose splits are all published, and stop at a file with too many bad rows."""
        stopped, unfinished = set(), set()
        for tally in tallies:
            self._rows.add(tally)
            if tally.stopped:
                stopped.add(tally.interchange_id)
            if tally.unfinished:
                unfinished.add(tally.interchange_id)
        published = [claim for claim in group if str(claim.interchange_id) not in stopped | unfinished]
        for claim in published:
            self._mark_done(connection, claim)
        self._finish(connection, published)
        for claim in group:
            if str(claim.interchange_id) in stopped:
                self._stop(connection, claim)

    def _mark_done(self, connection: Connection, claim: FileClaim) -> None:
        """Store the receipt of the whole file, so that it is not read again after a crash."""
        count = self._rows.catch_up(connection, claim.interchange_id, is_done=True)
        if not count:
            self.counts["empty"] += 1
            _log.warning(
                "%s: %s has no rows (%d bytes)", self.location.name, claim.name, claim.size, extra=claim.log_ids
            )
        take_receipts(connection, [Receipt(unit=claim.interchange_id, outcome={"last": count, "done": True})])
        self.counts["files"] += 1

    def _finish(self, connection: Connection, published: Sequence[FileClaim]) -> None:
        for problem in finish_files(connection, published, self._archive):
            _log.warning("%s: %s", self.location.name, problem)

    def _stop(self, connection: Connection, claim: FileClaim) -> None:
        self._rows.catch_up(connection, claim.interchange_id)
        why = file_claims.read_problem(connection, claim.interchange_id)
        if why is None:
            return  # another process has the file now
        self.stopped_by = f"{claim.name}: {why}"
        _log.error(
            "%s: the location has stopped. %s. Raise the limit and apply, or remove %s. Then disable and enable the"
            " location.",
            self.location.name,
            self.stopped_by,
            claim.path,
            extra=claim.log_ids,
        )


def _plan(claim: FileClaim) -> Mapping[str, Any] | None:
    return None if claim.reading is None else claim.reading["plan"]


def _has_planned_size(claim: FileClaim) -> bool:
    assert claim.reading is not None
    return (claim.reading["size"], claim.reading["modified_ns"]) == (claim.size, claim.modified_ns)


class RowCounts:
    """Counts each row of the files once: from the tallies of jobs, and from receipts after a job has failed. Such a job
    returns no tallies, but some of its tasks have published rows, and the next job finds them published."""

    def __init__(self) -> None:
        #: The counts since the start, by the names in COUNTED.
        self.counts: Counter[str] = Counter()
        #: The rows and bad rows of open files that are counted, or were published before the start.
        self._known: dict[uuid.UUID, tuple[int, int]] = {}

    def start(self, connection: Connection, files: Collection[uuid.UUID]) -> None:
        """Start to count files. Rows that another process has published are not counted."""
        new = [file for file in files if file not in self._known]
        if new:
            found = read_row_counts(connection, new)
            self._known.update({file: found.get(file, (0, 0)) for file in new})

    def add(self, tally: Row) -> None:
        """Count the tally of a task."""
        values = tally.asDict()
        self.counts.update({name: values[name] for name in COUNTED if name in values})
        file = uuid.UUID(tally.interchange_id)
        rows, bad = self._known.get(file, (0, 0))
        self._known[file] = rows + tally.rows, bad + tally.bad

    def catch_up(self, connection: Connection, file: uuid.UUID, *, is_done: bool = False) -> int:
        """Count the rows that no tally has reported: bad rows as suspended, the others as published, because receipts
        have no more details. Return the number of rows of the file that are published or suspended now."""
        rows, bad = read_row_counts(connection, [file]).get(file, (0, 0))
        known_rows, known_bad = self._known.pop(file, (0, 0))
        missing, missing_bad = max(0, rows - known_rows), max(0, bad - known_bad)
        self.counts.update(rows=missing, bad=missing_bad, published=missing - missing_bad, suspended=missing_bad)
        if not is_done:
            self._known[file] = known_rows + missing, known_bad + missing_bad
        return rows
