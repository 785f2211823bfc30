"""The receive task as Spark runs it: in a guarded worker, with its tally as a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from postroom.agent.receiving.document_batch import ReceiveResult
from postroom.errors import format_count
from postroom.receiving.task import OUTCOMES, Identified, ReceiveTask
from postroom.receiving.worker import get_worker
from postroom.spark.worker import GRACE, guard_worker

#: The name of the tally among the metrics of a streaming query.
TALLY_METRIC = "tally"
#: The time from the arrival of the files to their publication.
MILLISECONDS = "milliseconds"
TALLY_COLUMNS = (*OUTCOMES, MILLISECONDS)
#: The row that a task returns: the tally of its interchanges.
TALLY_SPARK_SCHEMA = ", ".join(f"{name} long" for name in TALLY_COLUMNS)
_TALLY_ARROW_SCHEMA = pa.schema([(name, pa.int64()) for name in TALLY_COLUMNS])


@dataclass(frozen=True, kw_only=True)
class SparkReceiveTask:
    """The function that Spark runs on the rows of a partition; pickled once per query."""

    task: ReceiveTask
    grace: float = GRACE
    """The worker is killed if it makes no progress for this many seconds longer than a call may take."""

    def __call__(self, rows: Sequence[Identified]) -> Iterator[pa.RecordBatch]:
        timeout = self.task.location.pipeline.call_seconds + self.grace
        with guard_worker(timeout) as is_retry:
            get_worker(self.task.login)  # also for no rows, so that the worker is warm
            yield make_tally(self.task.receive(rows, isolated=is_retry))


def make_tally(received: Sequence[ReceiveResult]) -> pa.RecordBatch:
    """Return one row for all interchanges, or none if there are none."""
    finished = sum(not interchange.unfinished for interchange in received)
    others = [sum(getattr(interchange, name) for interchange in received) for name in TALLY_COLUMNS[1:]]
    rows = [dict(zip(TALLY_COLUMNS, (finished, *others), strict=True))] if received else []
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
        *(format_count(counts["files"], "file"), f"{format_count(counts['published'], 'message')} published"),
        *(f"{counts[name]:,} {label}" for name, label in _OTHER_OUTCOMES.items() if counts[name]),
    ]
    return ", ".join(texts)
