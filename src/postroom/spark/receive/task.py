"""The receive task as Spark runs it: in a guarded worker, with its tally as a row."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from postroom.agent.streaming.document_batch import ReceiveResult
from postroom.errors import format_count
from postroom.messagebox.connection import Connection, Login
from postroom.messagebox.intake.numbered_interchanges import IntakeRow
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.files.file_receive_adapter import FileReceiveAdapter
from postroom.receiving.inbox_receive_adapter import InboxReceiveAdapter
from postroom.receiving.numbered_receive_adapter import NumberedReceiveAdapter
from postroom.receiving.task import MILLISECONDS, OUTCOMES, ReceiveTask, count_outcomes
from postroom.spark.worker import GRACE, close_worker, get_worker, guard_worker

#: The name of the tally among the metrics of a streaming query.
TALLY_METRIC = "tally"
TALLY_COLUMNS = (*OUTCOMES, MILLISECONDS)
#: The row that a task returns: the tally of its interchanges.
TALLY_SPARK_SCHEMA = ", ".join(f"{name} long" for name in TALLY_COLUMNS)
_TALLY_ARROW_SCHEMA = pa.schema([(name, pa.int64()) for name in TALLY_COLUMNS])


@dataclass(frozen=True, kw_only=True)
class SparkReceiveTask:
    """The function that Spark runs on the rows of a partition; pickled once per query."""

    location: ReceiveLocation
    login: Login
    home: Path
    paced: bool = False
    """Slow down between transactions while too many messages wait in the MessageBox."""
    grace: float = GRACE
    """The worker is killed if it makes no progress for this many seconds longer than a call may take."""

    def __call__(self, rows: Sequence[IntakeRow]) -> Iterator[pa.RecordBatch]:
        with guard_worker(self.location.pipeline.call_seconds + self.grace) as is_retry:
            yield make_tally(self.receive(rows, isolated=is_retry))

    def receive(self, rows: Sequence[IntakeRow], *, isolated: bool = False) -> list[ReceiveResult]:
        """Receive interchanges with the connection of this process. Raise if the MessageBox does not answer."""
        worker = get_worker(self.login)  # also for no interchanges, so that the worker is warm
        adapter = self.open_share(worker.connection, [row.interchange_id for row in rows])
        task = ReceiveTask(location=self.location, adapter=adapter, worker=worker, paced=self.paced)
        # One after the other: each after the commit of the one before, or alone with what it may do to the worker.
        limit = 1 if isolated or self.location.adapter.is_ordered else len(rows)
        received: list[ReceiveResult] = []
        try:
            while polled := adapter.poll(limit):
                received += task.receive(polled, isolated=isolated)
        except BaseException:
            close_worker(self.login)
            raise
        return received

    def open_share(self, connection: Connection, share: Sequence[uuid.UUID]) -> NumberedReceiveAdapter:
        """Return the receive adapter for the interchanges of one task."""
        if self.location.watched_folder is not None:
            return FileReceiveAdapter(connection, self.location, self.home, share=share)
        return InboxReceiveAdapter(connection, self.location, share=share, connect=partial(self.login.connect, "inbox"))


def make_tally(received: Sequence[ReceiveResult]) -> pa.RecordBatch:
    """Return one row for all interchanges, or none if there are none."""
    rows = [count_outcomes(received)] if received else []
    return pa.RecordBatch.from_pylist(rows, schema=_TALLY_ARROW_SCHEMA)


#: The counts that the log shows only if they are not zero.
_OTHER_OUTCOMES = {
    "suspended": "suspended",
    "routed": "routed as failures",
    "dropped": "dropped",
    "empty": "empty",
}


def format_tally(tally: Mapping[str, int]) -> str:
    """Return a tally as the log shows it."""
    counts = Counter(tally)
    texts = [
        format_count(counts["files"], "file"),
        f"{format_count(counts['published'], 'message')} published",
        *(f"{counts[name]:,} {label}" for name, label in _OTHER_OUTCOMES.items() if counts[name]),
    ]
    return ", ".join(texts)
