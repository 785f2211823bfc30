"""The receive task as Spark runs it: in a guarded worker, with its tally as a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from postroom.agent.streaming.document_batch import ReceiveResult
from postroom.errors import format_count
from postroom.messagebox.connection import Login
from postroom.receiving.task import MILLISECONDS, OUTCOMES, Identified, ReceiveSource, ReceiveTask, count_outcomes
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

    source: ReceiveSource[Any, Any]
    login: Login
    paced: bool = False
    """Slow down between transactions while too many messages wait in the MessageBox."""
    grace: float = GRACE
    """The worker is killed if it makes no progress for this many seconds longer than a call may take."""

    @cached_property
    def _task(self) -> ReceiveTask:
        return ReceiveTask(source=self.source, paced=self.paced)

    def __call__(self, rows: Sequence[Identified]) -> Iterator[pa.RecordBatch]:
        timeout = self.source.location.pipeline.call_seconds + self.grace
        with guard_worker(timeout) as is_retry:
            yield make_tally(self.receive(rows, isolated=is_retry))

    def receive(self, rows: Sequence[Identified], *, isolated: bool = False) -> list[ReceiveResult]:
        """Receive interchanges with the connection of this process. Raise if the MessageBox does not answer."""
        worker = get_worker(self.login)  # also for no rows, so that the worker is warm
        try:
            return self._task.receive(worker, rows, isolated=isolated)
        except BaseException:
            close_worker(self.login)
            raise


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
