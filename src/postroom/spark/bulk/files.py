"""The claimed files of a bulk location, published by jobs of Spark: some files a job, a split a task.

A job has to come to its end; then all its splits are published, and its files are taken away. If anything dies before
that, the claims are still there, and the next job finds by the receipts what is left to do.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from postroom.agent.publish import read_progress
from postroom.errors import Fault, PostroomError
from postroom.messagebox.configuration import ReceiveLocation
from postroom.messagebox.connection import Connection
from postroom.spark.bulk.counting import RowCounts
from postroom.spark.bulk.reading import Reading, read_files, rows_pipeline, rows_reader, session_for
from postroom.spark.bulk.task import TALLY_SCHEMA, BulkTask
from postroom.spark.bulk.undecoded import TextEncoding
from postroom.spark.intake import file_claims
from postroom.spark.intake.file_claims import FileClaim, FileClaimState
from postroom.spark.intake.published_files import finish_files, is_unchanged
from postroom.spark.login import Login
from postroom.spark.reasons import fault_of, reason_of

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

_log = logging.getLogger(__name__)

#: Files that are read by one job: none of them is taken away before all are published.
_MOST_FILES, _MOST_BYTES = 500, 256 << 20

#: The pool that bulk jobs share, so that the small batches of other locations do not wait for them to end.
_POOL = "bulk"


class BulkFiles:
    """Publishes what a location over files has claimed. ``receive`` blocks; ``cancel`` may be called meanwhile.
    ``paced`` tasks slow down while too much waits in the MessageBox."""

    def __init__(
        self, session: SparkSession, location: ReceiveLocation, *, login: Login, home: Path, paced: bool = True
    ) -> None:
        self.location = location
        self._rows = RowCounts()
        #: What is COUNTED, since the start.
        self.counts = self._rows.counts
        #: Why nothing more is read, once a file has had too many bad rows.
        self.stopped_by = ""
        self._session = session
        self._reader = rows_reader(location)
        self._login = login
        self._paced = paced
        self._folder = self._reader.watched.folder(home)
        self._archive = self._reader.watched.archive_folder(home)
        self._tag = f"postroom-{uuid.uuid4()}"
        self._cancelled = threading.Event()
        #: Whether a job runs.
        self.is_busy = False

    def receive(self, connection: Connection) -> bool:
        """Runs the next job; false if there is nothing to read. Raises what is nobody's file's fault."""
        if self.stopped_by:
            return False
        group = self._next_group(connection)
        if group:
            self.is_busy = True
            try:
                begun = self._begin(connection, group)
                if begun:  # otherwise another process has begun with them, or they were taken back
                    self._publish(connection, begun)
            finally:
                self.is_busy = False
        return bool(group)

    def cancel(self) -> None:
        """Ends the job that runs, and lets no other begin."""
        self._cancelled.set()
        # It may be that the job is not there yet, or that Spark is not there any more.
        self._session.sparkContext.cancelJobsWithTag(self._tag)

    # -- choosing ----------------------------------------------------------------------------------------------

    def _next_group(self, connection: Connection) -> list[FileClaim]:
        """Files that are read alike: those that one job was begun with, or new ones."""
        waiting = self._ready(connection, file_claims.between(connection, self.location.location_id, 0, 2**63 - 1))
        if not waiting:
            return []
        group: list[FileClaim] = []
        size = 0
        for claim in waiting:
            if _plan(claim) == _plan(waiting[0]) and (not group or size + claim.size <= _MOST_BYTES):
                group.append(claim)
                size += claim.size
        return group[:_MOST_FILES]

    def _ready(self, connection: Connection, given: Sequence[FileClaim]) -> list[FileClaim]:
        """Those that are what was claimed, and are not published to the end."""
        done = self._done(connection, given)
        self._finish(connection, [claim for claim in given if claim.interchange_id in done])
        ready = []
        for claim in given:
            if claim.interchange_id in done:
                continue
            try:
                unchanged = is_unchanged(claim)
            except FileNotFoundError:
                self._hold(
                    connection,
                    claim,
                    FileClaimState.MISSING,
                    "was removed by another process before it was published.",
                )
                continue
            if claim.reading is None and not unchanged:
                file_claims.reset_claims(connection, [claim.interchange_id])
            elif claim.reading is not None and not (unchanged and _is_what_was_begun(claim)):
                # What was published of it cannot be told any more from what is new.
                problem = f"was written to after a part of it was published. It is kept as {claim.path}."
                self._hold(connection, claim, FileClaimState.FAILED, problem)
            else:
                ready.append(claim)
        return ready

    def _done(self, connection: Connection, given: Sequence[FileClaim]) -> set[uuid.UUID]:
        ids = [claim.interchange_id for claim in given]
        return {one for one, progress in read_progress(connection, ids).items() if progress.done} if ids else set()

    def _hold(self, connection: Connection, claim: FileClaim, state: FileClaimState, problem: str) -> None:
        file_claims.store_problem(connection, claim, state, problem)
        _log.warning("%s: %s %s", self.location.name, claim.name, problem)

    # -- publishing --------------------------------------------------------------------------------------------

    def _publish(self, connection: Connection, group: Sequence[FileClaim]) -> None:
        self._rows.begin(connection, [claim.interchange_id for claim in group])
        try:
            tallies = self._run(group)
        except Exception as error:
            with suppress(PostroomError):
                for claim in group:
                    self._rows.catch_up(connection, claim.interchange_id)
            if self._cancelled.is_set() or fault_of(error) is Fault.ENVIRONMENT:
                raise
            if len(group) > 1:
                # One of them is to blame. The others must not wait for it.
                for claim in group:
                    self._publish(connection, [claim])
                return
            self._hold(
                connection, group[0], FileClaimState.FAILED, file_claims.format_problem(group[0], reason_of(error))
            )
            return
        if tallies is not None:
            self._settle(connection, group, tallies)

    def _begin(self, connection: Connection, group: Sequence[FileClaim]) -> list[FileClaim]:
        """The files with how they are read, from now on and for good."""
        if group[0].reading is not None:
            return list(group)
        reading = Reading.begin(self._session, self.location, group)
        return file_claims.store_read_plan(connection, group, reading.stored())

    def _run(self, group: Sequence[FileClaim]) -> list[Row] | None:
        """Run the job to its end. Returns None if nothing was read, because a file is not what was claimed."""
        from postroom.spark.session import without_pandas_warning

        plan = _plan(group[0])
        assert plan is not None
        reading = Reading(**plan)
        location = reading.received_at(self.location)
        task = BulkTask(
            login=self._login,
            location=location,
            origins={claim.interchange_id: str(self._folder / claim.name) for claim in group},
            paths={claim.interchange_id: claim.path for claim in group},
            encoding=TextEncoding.of(reading.format, reading.options, rows_pipeline(location)),
            paced=self._paced,
        )
        context = self._session.sparkContext
        context.setLocalProperty("spark.scheduler.pool", _POOL)
        context.addJobTag(self._tag)
        try:
            with without_pandas_warning():
                session = session_for(self._session, reading.settings)
                # Generated code pays off for rows by the million; the receive stream has none.
                session.conf.set("spark.sql.codegen.wholeStage", "true")
                paths = [str(claim.path) for claim in group]
                rows = read_files(session, reading, rows_pipeline(location), paths)
                # Spark has listed the files by their paths. Nothing is read if one of them was replaced since.
                if not all(is_unchanged(claim) for claim in group):
                    return None
                # A row per split: the messages themselves never come here.
                return rows.mapInArrow(task, TALLY_SCHEMA).collect()
        finally:
            context.removeJobTag(self._tag)

    def _settle(self, connection: Connection, group: Sequence[FileClaim], tallies: Sequence[Row]) -> None:
        """Every split is published, or a file has too many bad rows, or the rest of it has to wait."""
        stopped, unfinished = set(), set()
        for tally in tallies:
            self._rows.add(tally)
            if tally.stopped:
                stopped.add(tally.interchange_id)
            if tally.unfinished:
                unfinished.add(tally.interchange_id)
        whole = [claim for claim in group if str(claim.interchange_id) not in stopped | unfinished]
        for claim in whole:
            self._mark_done(connection, claim)
        self._finish(connection, whole)
        for claim in group:
            if str(claim.interchange_id) in stopped:
                self._stop(connection, claim)

    def _mark_done(self, connection: Connection, claim: FileClaim) -> None:
        """The receipt of the whole: whoever finds the file again need not read it."""
        count = self._rows.catch_up(connection, claim.interchange_id, is_done=True)
        if not count:
            self.counts["empty"] += 1
            _log.warning("%s: %s has no rows (%d bytes)", self.location.name, claim.name, claim.size)
        outcome = json.dumps({"last": count, "done": True})
        connection.execute(
            "SELECT unit FROM take_receipts(%s::uuid[], '{0}', %s::jsonb[])", ([claim.interchange_id], [outcome])
        )
        self.counts["files"] += 1

    def _finish(self, connection: Connection, published: Sequence[FileClaim]) -> None:
        for problem in finish_files(connection, published, self._archive):
            _log.warning("%s: %s", self.location.name, problem)

    def _stop(self, connection: Connection, claim: FileClaim) -> None:
        self._rows.catch_up(connection, claim.interchange_id)
        why = file_claims.read_problem(connection, claim.interchange_id)
        if why is None:
            return  # somebody else has the file now
        self.stopped_by = f"{claim.name}: {why}"
        _log.error(
            "%s: the location has stopped. %s. Raise the limit and apply, or take away %s; then disable and enable the"
            " location.",
            *(self.location.name, self.stopped_by, claim.path),
        )


def _plan(claim: FileClaim) -> Mapping[str, Any] | None:
    return None if claim.reading is None else claim.reading["plan"]


def _is_what_was_begun(claim: FileClaim) -> bool:
    assert claim.reading is not None
    return (claim.reading["size"], claim.reading["modified_ns"]) == (claim.size, claim.modified_ns)
