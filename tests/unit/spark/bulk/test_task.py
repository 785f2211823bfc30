"""Splits and progress of a bulk location. Runs without Spark."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pyarrow as pa

from postroom.spark.bulk.progress import BulkProgress
from postroom.spark.bulk.task import read_splits

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


def test_rows_are_grouped_by_split() -> None:
    batches = [
        batch([]),
        batch([(A, 0, 1), (A, 0, 2)]),
        batch([(A, 0, 3), (A, 10, 4), (B, 10, 5)]),
        batch([(B, 10, 6)]),
    ]
    found = [
        ((split.interchange_id, split.start, split.length), [batch["body"].to_pylist() for batch in split.batches])
        for split in read_splits(iter(batches))
    ]
    assert found == [((A, 0, 10), [[1, 2], [3]]), ((A, 10, 10), [[4]]), ((B, 10, 10), [[5], [6]])]


def test_unread_rows_of_a_split_are_skipped() -> None:
    batches = [batch([(A, 0, 1)]), batch([(A, 0, 2)]), batch([(B, 0, 3)])]
    assert [split.interchange_id for split in read_splits(iter(batches))] == [A, B]


def test_progress_is_described() -> None:
    progress = BulkProgress(
        location="bulk", rows=1_230_000, bad=3, rate=45_000, files_left=1, bytes_left=820_000_000, bytes_total=2 * 10**9
    )
    assert str(progress) == "bulk: 1,230,000 rows, 3 bad, 45,000 rows/s, 820 MB of 2,000 MB left (one file)"
    small = replace(progress, bad=0, files_left=2, bytes_left=400_000, bytes_total=1_000_000)
    assert str(small) == "bulk: 1,230,000 rows, 45,000 rows/s, 400 KB of 1,000 KB left (2 files)"
    assert str(replace(small, files_left=0, bytes_left=0)) == "bulk: 1,230,000 rows, nothing left"
