"""The source of a receive stream: its offsets are the numbers of file claims."""

from __future__ import annotations

import pickle
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

from postroom import Throttling
from postroom.errors import Unavailable
from postroom.messagebox.connection import Login
from postroom.messagebox.intake import file_claims
from postroom.messagebox.intake.file_claims import FileClaim
from postroom.ports.receive_locations import ReceiveLocation
from postroom.spark.receive.stream_source import NumberedReader, RowsPartition, StreamSettings, balance
from tests.spark.conftest import ClaimFiles
from tests.support.box import Box
from tests.support.file_location import add_file_location
from tests.support.host_settings import set_thresholds
from tests.support.simulated_load import set_load


def file_of(size: int) -> FileClaim:
    return FileClaim(interchange_id=uuid.uuid4(), name="f", path=Path("/f"), size=size, modified_ns=0)


@pytest.mark.parametrize(
    ("sizes", "parts", "loads"),
    [
        ([], 2, []),
        ([5], 4, [[5]]),
        ([1, 1, 1, 1], 2, [[1, 1], [1, 1]]),
        ([10**6, 10, 10, 10**6, 10, 10], 2, [[10**6, 10, 10], [10**6, 10, 10]]),
        ([10**9, 1, 2, 3], 2, [[10**9], [3, 2, 1]]),
    ],
)
def test_files_are_balanced_over_tasks_by_size(sizes: list[int], parts: int, loads: list[list[int]]) -> None:
    shares = balance([file_of(size) for size in sizes], parts)
    assert sorted(sorted((file.size for file in share), reverse=True) for share in shares) == sorted(loads)


def test_the_files_of_a_task_are_in_the_order_of_their_claims() -> None:
    files = [file_of(size) for size in (3, 9, 1, 7)]
    [share] = balance(files, 1)
    assert share == files


@pytest.fixture
def location(box: Box, folder: Path) -> ReceiveLocation:
    return add_file_location(box, folder)


def reader_of(
    login: Login,
    location: ReceiveLocation,
    *,
    partitions: int = 2,
    max_rows: int = 2,
    host_id: int | None = None,
    task: bytes = b"",
) -> NumberedReader:
    settings = StreamSettings(
        login=login,
        location_id=location.location_id,
        partitions=partitions,
        max_rows=max_rows,
        host_id=host_id,
    )
    return NumberedReader(settings, task)


@dataclass(frozen=True)
class ReportingTask:
    """A task that yields itself, so that a test can compare the tasks of several batches."""

    location: ReceiveLocation

    def __call__(self, rows: Sequence[Any]) -> Iterator[Any]:
        yield self


def read_task(login: Login, location: ReceiveLocation) -> ReportingTask:
    """Return the task that runs in a worker, which gets a new copy of the reader for every batch."""
    reader = reader_of(login, location, task=pickle.dumps(ReportingTask(location)))
    [task] = reader.read(RowsPartition([]))
    assert isinstance(task, ReportingTask)
    return task


def test_a_worker_parses_the_definitions_of_a_location_once(login: Login, location: ReceiveLocation) -> None:
    adapter = read_task(login, location).location.adapter
    assert read_task(login, location).location.adapter is adapter


def test_a_worker_uses_the_new_definitions_of_a_changed_location(login: Login, location: ReceiveLocation) -> None:
    read_task(login, location)
    changed = location.replace_settings(adapter={**location.adapter_json, "archive": "archive"})
    assert read_task(login, changed).location == changed
    assert read_task(login, changed).location.adapter == changed.adapter
    assert read_task(login, location).location == location


def names(login: Login, partitions: object) -> list[str]:
    assert isinstance(partitions, list)
    assert all(isinstance(partition, RowsPartition) for partition in partitions)
    ids = [row.interchange_id for partition in partitions for row in partition.rows]
    with login.connect("claims") as connection:
        return sorted(claim.name for claim in file_claims.read_claims(connection, ids))


def test_a_batch_has_at_most_max_rows_files_and_the_next_one_continues(
    login: Login, location: ReceiveLocation, folder: Path, claim: ClaimFiles
) -> None:
    reader = reader_of(login, location)
    start = reader.latestOffset(reader.initialOffset(), ReadMaxFiles(2))
    assert reader.latestOffset(start, ReadMaxFiles(2)) == start
    for name in "abc":
        (folder / name).write_bytes(b"{}")
        claim(location)
    first = reader.latestOffset(start, ReadMaxFiles(2))
    assert names(login, reader.partitions(start, first)) == ["a", "b"]
    second = reader.latestOffset(first, ReadMaxFiles(2))
    assert names(login, reader.partitions(first, second)) == ["c"]
    assert reader.latestOffset(second, ReadMaxFiles(2)) == second
    everything = reader.latestOffset(start, ReadAllAvailable())
    assert names(login, reader.partitions(start, everything)) == ["a", "b", "c"]
    reader.stop()


def test_a_small_batch_has_one_task_except_now_and_then(
    login: Login, location: ReceiveLocation, folder: Path, claim: ClaimFiles
) -> None:
    reader = reader_of(login, location, max_rows=1_000)
    start = reader.latestOffset(reader.initialOffset(), ReadMaxFiles(1_000))
    for name in "abcd":
        (folder / name).write_bytes(b"{}")
    claim(location)
    last = reader.latestOffset(start, ReadMaxFiles(1_000))
    assert len(reader.partitions(start, last)) == 2, "Spark ends a worker that never has a task"
    assert len(reader.partitions(start, last)) == 1
    (folder / "large").write_bytes(b"{}\n" * 10_000)
    claim(location)
    larger = reader.latestOffset(start, ReadMaxFiles(1_000))
    assert len(reader.partitions(start, larger)) == 2, "a large file may have many messages"
    reader.stop()


def test_after_a_batch_of_many_rows_the_next_one_waits_for_more(
    login: Login, location: ReceiveLocation, folder: Path, claim: ClaimFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("postroom.spark.receive.stream_source.time", SimpleNamespace(monotonic=lambda: now[0]))
    reader = reader_of(login, location, max_rows=1_000, host_id=location.host_id)
    start = reader.latestOffset(reader.initialOffset(), ReadMaxFiles(1_000))
    for number in range(60):
        (folder / f"first {number}").write_bytes(b"{}")
    claim(location)
    first = reader.latestOffset(start, ReadMaxFiles(1_000))
    assert len(names(login, reader.partitions(start, first))) == 60
    (folder / "second").write_bytes(b"{}")
    claim(location)
    assert reader.latestOffset(first, ReadMaxFiles(1_000)) == first
    now[0] += 0.3
    assert reader.latestOffset(first, ReadMaxFiles(1_000))["number"] > first["number"]
    reader.stop()


def test_claims_of_another_location_are_not_read(
    box: Box, login: Login, location: ReceiveLocation, folder: Path, claim: ClaimFiles
) -> None:
    other = add_file_location(box, folder / "other", name="other")
    (folder / "other").mkdir()
    (folder / "other" / "theirs").write_bytes(b"{}")
    claim(other)
    reader = reader_of(login, location)
    start = reader.latestOffset(reader.initialOffset(), ReadMaxFiles(2))
    assert reader.latestOffset(start, ReadMaxFiles(2))["number"] == 0
    reader.stop()


def test_the_offset_stays_while_the_messagebox_cannot_be_reached(location: ReceiveLocation, tmp_path: Path) -> None:
    reader = reader_of(Login(url=f"postgresql:///nowhere?host={tmp_path}"), location)
    start = {"number": 7, "warm_ups": 1}
    assert reader.latestOffset(start, ReadMaxFiles(2)) == start
    with pytest.raises(Unavailable):
        reader.partitions(start, {"number": 8, "warm_ups": 1})


def test_a_lost_connection_is_opened_again(
    box: Box, login: Login, location: ReceiveLocation, folder: Path, claim: ClaimFiles
) -> None:
    reader = reader_of(login, location)
    start = reader.latestOffset(reader.initialOffset(), ReadMaxFiles(2))
    (folder / "a").write_bytes(b"{}")
    claim(location)
    box.connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'postroom stream'"
    )
    end = reader.latestOffset(start, ReadMaxFiles(2))
    assert names(login, reader.partitions(start, end)) == ["a"]
    reader.stop()


def test_the_first_batch_is_an_empty_one_even_if_files_wait(
    login: Login, location: ReceiveLocation, folder: Path, claim: ClaimFiles
) -> None:
    (folder / "a").write_bytes(b"{}")
    claim(location)
    reader = reader_of(login, location)
    start = reader.initialOffset()
    warm = reader.latestOffset(start, ReadMaxFiles(2))
    tasks = reader.partitions(start, warm)
    assert (len(tasks), names(login, tasks)) == (2, [])
    first = reader.latestOffset(warm, ReadMaxFiles(2))
    assert names(login, reader.partitions(warm, first)) == ["a"]
    reader.stop()


def test_an_idle_stream_keeps_its_workers_warm(
    login: Login, location: ReceiveLocation, folder: Path, claim: ClaimFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    reader = reader_of(login, location)
    start = reader.initialOffset()
    warm = reader.latestOffset(start, ReadMaxFiles(2))
    tasks = reader.partitions(start, warm)
    assert (len(tasks), names(login, tasks)) == (2, [])
    now += 39
    assert reader.latestOffset(warm, ReadMaxFiles(2)) == warm
    (folder / "a").write_bytes(b"{}")
    claim(location)
    busy = reader.latestOffset(warm, ReadMaxFiles(2))
    assert names(login, reader.partitions(warm, busy)) == ["a"]
    now += 39
    assert reader.latestOffset(busy, ReadMaxFiles(2)) == busy
    now += 1
    assert reader.latestOffset(busy, ReadMaxFiles(2)) == {**busy, "warm_ups": 2}
    reader.stop()


def test_throttled_batches_are_small_and_delayed(
    box: Box,
    login: Login,
    location: ReceiveLocation,
    folder: Path,
    claim: ClaimFiles,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    set_thresholds(box.connection, location.host_id, Throttling(messages=10, longest_delay=60))
    set_load(box, queued=15)
    for name in "abcdef":
        (folder / name).write_bytes(b"{}")
    claim(location)
    reader = reader_of(login, location, partitions=1, max_rows=40, host_id=location.host_id)
    start = reader.latestOffset(reader.initialOffset(), ReadMaxFiles(40))
    first = reader.latestOffset(start, ReadMaxFiles(40))
    assert len(names(login, reader.partitions(start, first))) == 2
    now += 29
    assert reader.latestOffset(first, ReadMaxFiles(40)) == first
    now += 2
    second = reader.latestOffset(first, ReadMaxFiles(40))
    assert len(names(login, reader.partitions(first, second))) == 2
    now += 1.5
    assert reader.latestOffset(second, ReadMaxFiles(40)) == second
    # The stream continues when throttling ends, before the end of the delay.
    set_load(box, queued=10)
    now += 1.5
    third = reader.latestOffset(second, ReadMaxFiles(40))
    assert len(names(login, reader.partitions(second, third))) == 2
    reader.stop()
