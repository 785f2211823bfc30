"""What tasks and jobs of a bulk location make of what they get; without Spark."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pyarrow as pa
import pytest

from postroom.spark.bulk.job_failure import is_about_files
from postroom.spark.bulk.progress import BulkProgress
from postroom.spark.bulk.task import splits_of

A, B = uuid.UUID(int=1), uuid.UUID(int=2)


def batch(rows: list[tuple[uuid.UUID, int, int]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "file": [str(file) for file, _, _ in rows],
            "start": pa.array([start for _, start, _ in rows], pa.int64()),
            "length": pa.array([10 for _ in rows], pa.int64()),
            "body": pa.array([number for _, _, number in rows], pa.int64()),
        }
    )


def test_rows_are_told_apart_by_their_splits() -> None:
    batches = [
        batch([]),
        batch([(A, 0, 1), (A, 0, 2)]),
        batch([(A, 0, 3), (A, 10, 4), (B, 10, 5)]),
        batch([(B, 10, 6)]),
    ]
    found = [
        ((split.interchange_id, split.start, split.length), [one["body"].to_pylist() for one in split.batches])
        for split in splits_of(iter(batches))
    ]
    assert found == [((A, 0, 10), [[1, 2], [3]]), ((A, 10, 10), [[4]]), ((B, 10, 10), [[5], [6]])]


def test_what_is_left_of_a_split_is_passed_over() -> None:
    batches = [batch([(A, 0, 1)]), batch([(A, 0, 2)]), batch([(B, 0, 3)])]
    assert [split.interchange_id for split in splits_of(iter(batches))] == [A, B]


def raised(line: str) -> Exception:
    return Exception(
        f"Job aborted. Traceback (most recent call last):\n  File x, line 1, in f\n    boom\n{line}\n\nmore"
    )


@pytest.mark.parametrize(
    ("error", "about_files"),
    [
        (Exception("[FAILED_READ_FILE.NO_HINT] Encountered error while reading file x"), True),
        (raised("psycopg.errors.AdminShutdown: terminating connection"), False),
        (raised("psycopg.OperationalError: the server closed the connection"), False),
        (raised("psycopg.errors.NumericValueOutOfRange: out of range"), True),
        (raised("postroom.errors.Unavailable: The MessageBox does not answer."), False),
        (raised("ValueError: what is this"), True),
        (raised("OSError: [Errno 28] No space left on device"), False),
        (raised("MemoryError"), False),
        (raised("OSError: [Errno 2] No such file or directory: 'x'"), True),
        (Exception("Job aborted due to stage failure: java.io.IOException: No space left on device"), False),
        (Exception("Job aborted.\nCaused by: java.io.FileNotFoundException: /x (Too many open files)\n\tat x"), False),
        (Exception("Job 3 cancelled: ExecutorLostFailure (executor 1 exited)"), False),
    ],
)
def test_whose_fault_it_is(error: Exception, about_files: bool) -> None:
    assert is_about_files(error) is about_files


def test_progress_in_words() -> None:
    progress = BulkProgress(
        location="bulk", rows=1_230_000, bad=3, rate=45_000, files_left=1, bytes_left=820_000_000, bytes_total=2 * 10**9
    )
    assert str(progress) == "bulk: 1,230,000 rows, 3 bad, 45,000 rows/s, 820 MB of 2,000 MB left (one file)"
    small = replace(progress, bad=0, files_left=2, bytes_left=400_000, bytes_total=1_000_000)
    assert str(small) == "bulk: 1,230,000 rows, 45,000 rows/s, 400 KB of 1,000 KB left (2 files)"
    assert str(replace(small, files_left=0, bytes_left=0)) == "bulk: 1,230,000 rows, nothing left"
