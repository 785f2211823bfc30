"""Rows that Spark has read are published in chunks, and each chunk once (ADR 0004)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from postroom import pipelines
from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.receiver import Receiver
from postroom.agent.streaming.row_units import BadRowLimit, ReceivedRows, RowUnit, receive_rows
from postroom.errors import PipelineFailure, StateError
from postroom.filters.columns import to_arrow_type
from postroom.messagebox.connection import Connection, Login, connect
from postroom.messagebox.storage.receipts import Progress, read_progress
from postroom.pipelines.rows.batch import RowOrigin
from postroom.ports.receive_locations import ReceiveLocation
from postroom.spark.bulk.bulk_files import RowCounts
from postroom.spark.bulk.row_stream_task import PartitionLimit
from postroom.spark.bulk.task import BulkTask, Split
from postroom.spark.worker import close_worker
from postroom.system_properties import BTS
from tests.support.box import PROMOTE, Box, Priority, Region, interchange
from tests.support.bulk_location import SCHEMA, add_bulk_location
from tests.support.dequeue import resume_now

ROWS = pipelines.Rows(promote={Region: "region", Priority: "priority"}).with_columns(("region", "priority"), None)
UNIT = RowUnit(unit_id=uuid.UUID(int=7))
#: The Arrow types of the promoted columns.
TYPES = [to_arrow_type(prop.value_type) for prop in PROMOTE]


class Unlimited:
    def allows(self, *, bad: int, unroutable: int, rows: int) -> bool:
        return True


@pytest.fixture
def connection(box: Box) -> Iterator[Connection]:
    with connect(box.url, user=box.host().role_name) as opened:
        yield opened


@pytest.fixture
def location(box: Box, tmp_path: Path) -> ReceiveLocation:
    box.add_port("Europe", "Region == 'EU'")
    return add_bulk_location(box, tmp_path, pipeline=ROWS, bad_rows=2)


class FakeRow(SimpleNamespace):
    """The part of a Spark row that the test needs."""

    def asDict(self) -> dict[str, object]:  # noqa: N802
        return vars(self)


def batch(*numbers: int, region: str = "EU", bad: int = 0, start: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "body": [b"row %d" % number for number in numbers],
            "value0": [region] * len(numbers),
            "value1": pa.array(numbers, pa.int32()),
            "bad": pa.array(["bad line"] * bad + [None] * (len(numbers) - bad), pa.string()),
            "file": [str(uuid.UUID(int=1))] * len(numbers),
            "start": pa.array([start] * len(numbers), pa.int64()),
            "length": pa.array([100] * len(numbers), pa.int64()),
        }
    )


def receive(
    connection: Connection,
    location: ReceiveLocation,
    batches: list[pa.RecordBatch],
    pace: Callable[[], bool] = lambda: True,
    limit: BadRowLimit | None = None,
) -> ReceivedRows:
    return receive_rows(
        Receiver(connection, RoutingTable()),
        location,
        ROWS,
        UNIT,
        batches,
        progress=read_progress(connection, [UNIT.unit_id])[UNIT.unit_id],
        bad_content_type="text/csv",
        limit=limit or Unlimited(),
        pace=pace,
    )


def test_a_repeated_unit_continues_after_the_last_published_chunk(
    box: Box, connection: Connection, location: ReceiveLocation
) -> None:
    batches = [batch(1, 2), batch(3, 4), batch(5, region="MARS")]

    def fail_after_two() -> Iterator[pa.RecordBatch]:
        yield from batches[:2]
        raise ConnectionError

    with pytest.raises(ConnectionError):
        receive(connection, location, fail_after_two())  # type: ignore[arg-type]
    assert box.queued() == {"Europe": 2}  # a chunk is published when the next one is read
    assert read_progress(connection, [UNIT.unit_id]) == {UNIT.unit_id: Progress(next_chunk=1, last_document=2)}
    received = receive(connection, location, batches)
    assert (received.rows, received.published, received.suspended) == (3, 2, 1)
    assert box.queued() == {"Europe": 4}
    assert receive(connection, location, batches) == ReceivedRows(unit_id=UNIT.unit_id)
    assert sorted(code for code, _ in box.suspended()) == ["ROUTING", "ROUTING"]
    assert box.count("messages") == 6  # with the routing failure report


def test_two_concurrent_attempts_publish_every_chunk_once(
    box: Box, connection: Connection, location: ReceiveLocation
) -> None:
    batches = [batch(1, 2), batch(3, 4), batch(5)]

    def run_concurrent_attempt() -> Iterator[pa.RecordBatch]:
        yield batches[0]
        receive(connection, location, batches)
        yield from batches[1:]

    with connect(box.url, user=box.host().role_name) as late:
        received = receive(late, location, run_concurrent_attempt())  # type: ignore[arg-type]
    assert received.rows == 0
    assert box.queued() == {"Europe": 5}


def read_bodies(box: Box) -> list[bytes]:
    return sorted(box.bodies())


def test_a_repeated_unit_with_other_batches_continues_with_the_next_row(
    box: Box, connection: Connection, location: ReceiveLocation
) -> None:
    """Another pipeline makes other bodies, and Spark limits its batches by their size."""

    def fail_after_two() -> Iterator[pa.RecordBatch]:
        yield from [batch(1, 2), batch(3, 4)]
        raise ConnectionError

    with pytest.raises(ConnectionError):
        receive(connection, location, fail_after_two())  # type: ignore[arg-type]
    received = receive(connection, location, [batch(1, 2, 3), batch(4, 5, 6)])
    assert (received.rows, received.published) == (4, 4)
    assert read_bodies(box) == [b"row %d" % number for number in range(1, 7)]
    assert receive(connection, location, [batch(*range(1, 7))]).rows == 0
    assert len(read_bodies(box)) == 6


def test_concurrent_attempts_with_other_batches_publish_every_row_once(
    box: Box, connection: Connection, location: ReceiveLocation
) -> None:
    """An abandoned task may still run with the old pipeline."""

    def run_abandoned_attempt() -> Iterator[pa.RecordBatch]:
        yield batch(1, 2, 3)
        yield batch(4, 5)  # the chunk before is published when this one is read
        receive(connection, location, read_other_batches())  # type: ignore[arg-type]
        yield batch(6, 7)

    def read_other_batches() -> Iterator[pa.RecordBatch]:
        yield from [batch(1), batch(2, 3, 4), batch(5, 6), batch(7)]

    with connect(box.url, user=box.host().role_name) as late:
        received = receive(late, location, run_abandoned_attempt())  # type: ignore[arg-type]
    assert received.rows == 3
    assert read_bodies(box) == [b"row %d" % number for number in range(1, 8)]


@pytest.mark.parametrize("numbers", [(1, 2), (1, 2, 3, 4)])
def test_a_repeated_unit_with_another_number_of_rows_is_rejected(
    box: Box, connection: Connection, location: ReceiveLocation, numbers: tuple[int, ...]
) -> None:
    receive(connection, location, [batch(1, 2, 3)])
    with pytest.raises(StateError, match=rf"returned {len(numbers)} rows, but 3 were published before"):
        receive(connection, location, [batch(*numbers)])
    assert len(read_bodies(box)) == 3


@pytest.fixture
def task(box: Box, location: ReceiveLocation) -> Iterator[BulkTask]:
    box.add_file_claim(location.location_id, interchange_id=uuid.UUID(int=1), number=1, size=100)
    login = Login(url=box.url, user=box.host().role_name)
    yield BulkTask(login=login, location=location, origins={uuid.UUID(int=1): "in/a"})
    close_worker(login)


def split(start: int, *batches: pa.RecordBatch) -> Split:
    return Split(interchange_id=uuid.UUID(int=1), start=start, length=50, batches=iter(batches))


def test_bad_rows_are_counted_over_all_splits_of_a_file(box: Box, task: BulkTask) -> None:
    assert not task.receive(split(0, batch(1, 2, 3, bad=1))).stopped
    assert not task.receive(split(50, batch(4, 5, 6, bad=1))).stopped
    third = task.receive(split(100, batch(7, 8), batch(9, 10, bad=1), batch(11)))
    assert third.stopped
    assert third.rows == 2
    assert box.file_claims()[0].problem == "3 of 10 rows are bad, and bad_rows allows 2"
    # A task that starts later publishes nothing, and its split does not count as done.
    late = task.receive(split(150, batch(12)))
    assert (late.rows, late.stopped) == (0, True)
    assert box.queued() == {"Europe": 6}
    progress = box.connection.execute(
        "SELECT row_count, bad_rows, bytes_done FROM split_progress(%s)", ([uuid.UUID(int=1)],)
    )
    assert progress.fetchone() == (8, 2, 100)


def test_rows_without_a_subscriber_count_as_bad_rows_of_a_file(box: Box, task: BulkTask) -> None:
    assert not task.receive(split(0, batch(1, 2), batch(3, region="MARS"))).stopped
    second = task.receive(split(50, batch(4, 5, bad=1), batch(6, 7, region="MARS"), batch(8)))
    assert (second.stopped, second.rows) == (True, 2)
    problem = box.file_claims()[0].problem
    assert problem == "4 of 7 rows are bad or have no subscriber, and bad_rows allows 2"
    assert box.queued() == {"Europe": 3}
    assert sorted(box.suspended()) == [("PIPELINE", True), ("ROUTING", False), ("ROUTING", True)]


def test_rows_without_a_subscriber_count_as_bad_rows_of_a_stream(
    box: Box, connection: Connection, location: ReceiveLocation
) -> None:
    limit = PartitionLimit(connection, UNIT.unit_id, 2)
    stopped = receive(connection, location, [batch(1, 2, region="MARS"), batch(3, region="MARS")], limit=limit)
    assert (stopped.stopped, stopped.rows) == (True, 2)
    # The count is in the receipts, so it continues in the next attempt.
    again = receive(connection, location, [batch(1, 2, region="MARS"), batch(3, region="MARS")], limit=limit)
    assert (again.stopped, again.rows) == (True, 0)
    box.add_port("Mars", "Region == 'MARS'")
    rest = receive(connection, location, [batch(1, 2, region="MARS"), batch(3, region="MARS")], limit=limit)
    assert (rest.stopped, rest.published) == (False, 1)


def test_a_task_returns_its_counts_to_the_driver(task: BulkTask) -> None:
    [tally] = task(iter([batch(1, 2), batch(3, bad=1)]))
    assert tally.to_pylist() == [
        {
            "interchange_id": str(uuid.UUID(int=1)),
            "rows": 3,
            "bad": 1,
            "published": 2,
            "suspended": 1,
            "routed": 0,
            "stopped": False,
            "unfinished": False,
        }
    ]


def test_rows_of_a_failed_job_are_counted(box: Box, task: BulkTask) -> None:
    file = uuid.UUID(int=1)
    task.receive(split(0, batch(1, 2, 3)))  # by an earlier process
    counting = RowCounts()
    counting.start(box.connection, [file])
    task.receive(split(50, batch(4, 5, 6, bad=1)))  # the counts of this task are lost
    counting.start(box.connection, [file])
    [counts] = task(iter([batch(7, 8, bad=1, start=100)]))
    counting.add(FakeRow(**counts.to_pylist()[0]))  # type: ignore[arg-type]
    assert counting.catch_up(box.connection, file) == 8
    expected = {"rows": 5, "bad": 2, "published": 3, "suspended": 2}
    assert {name: counting.counts[name] for name in expected} == expected
    assert counting.catch_up(box.connection, file, is_done=True) == 8
    assert counting.counts["rows"] == 5


def test_a_host_cannot_start_a_split_of_another_host(box: Box, task: BulkTask) -> None:
    other = box.add_host("Other")
    with connect(box.url, user=other.role_name) as connection:
        started = connection.execute(
            "SELECT start_split(%s, %s, 0, 10)", (uuid.UUID(int=5), uuid.UUID(int=1))
        ).fetchone()
    assert started == (False,)


def test_a_corrected_row_is_received_without_spark(box: Box, connection: Connection, location: ReceiveLocation) -> None:
    """RCV-15: the corrected body is the message."""
    fixed = interchange(b'{"region": "EU", "priority": 3}')
    Receiver(connection, RoutingTable()).receive_again(location, fixed, lambda _: None)
    assert box.queued() == {"Europe": 1}
    still_bad = interchange(b"17,EU")
    with pytest.raises(PipelineFailure):
        Receiver(connection, RoutingTable()).receive_again(location, still_bad, lambda _: None)


def test_a_corrected_line_of_a_csv_file_becomes_the_message(box: Box, connection: Connection, tmp_path: Path) -> None:
    box.add_port("Europe", "Region == 'EU'")
    location = add_bulk_location(box, tmp_path, options={"sep": ";", "encoding": "ISO-8859-1"}, schema=SCHEMA)
    assert isinstance(location.pipeline, pipelines.Rows)
    bad = pa.RecordBatch.from_pydict(
        {
            "body": [b"{}"],
            **{f"value{n}": pa.nulls(1, kind) for n, kind in enumerate(TYPES)},
            "bad": ["17;EU;zwölf;3"],
            "nulls": [["total"]],
        }
    )
    unit = RowUnit(unit_id=uuid.UUID(int=7), origin=RowOrigin(file="big.csv", start=4096))
    receive_rows(
        Receiver(connection, RoutingTable()),
        location,
        location.pipeline,
        unit,
        [bad],
        progress=Progress(),
        bad_content_type="text/csv",
        limit=Unlimited(),
    )
    [row] = box.suspended_rows()
    instance_id, description = row.instance_id, row.error_description
    assert description.split("\n") == [
        "Row 1 after byte 4096 of big.csv does not fit the schema.",
        "The column 'total' is decimal(12,2), but has 'zwölf'.",
        "Resume the instance with the corrected line, or terminate it.",
    ]
    assert row.body == "17;EU;zwölf;3".encode("iso-8859-1")
    [resumed] = resume_now(box, instance_id, body="17;EU;12.5;3\n".encode("iso-8859-1"))
    assert resumed.data == b'{"id":17,"region":"EU","total":12.50,"priority":3}'
    assert (resumed.context[Region], resumed.context[Priority]) == ("EU", 3)
    assert resumed.body is not None
    assert resumed.body.content_type == "application/json"


@pytest.mark.parametrize(
    ("rows", "body", "content_type"),
    [
        (pipelines.Rows(body="json"), b'{"region":"EU","priority":3}', "application/json"),
        (pipelines.Rows(body="csv"), b"1,EU,2.50,3", "text/csv"),
        (pipelines.Rows(column="value"), b"any bytes", "application/octet-stream"),
    ],
    ids=["json", "csv", "column"],
)
def test_a_row_without_authenticated_originator_is_resumed_with_its_properties(
    box: Box, connection: Connection, tmp_path: Path, rows: pipelines.Rows, body: bytes, content_type: str
) -> None:
    """INS-12: also with properties that the body does not contain."""
    promoting = rows.model_copy(update={"promote": ROWS.promote, "message_type": "order"})
    location = add_bulk_location(box, tmp_path, pipeline=promoting, bad_rows=2)
    box.add_port("Europe", "Region == 'EU'")
    batch_of_two = pa.RecordBatch.from_pydict({"body": [body, body], "value0": ["EU"] * 2, "value1": pa.array([3, 3])})
    received = receive_rows(
        Receiver(connection, RoutingTable()),
        replace(location, port={**location.port, "authentication": "keep"}),
        promoting.with_columns(("region", "priority"), None),
        UNIT,
        [batch_of_two.slice(0, 1), batch_of_two.slice(1)],
        progress=Progress(),
        bad_content_type="text/csv",
        limit=Unlimited(),
    )
    assert (received.suspended, box.suspended()) == (2, [("AUTHENTICATION", True)] * 2)
    for row in box.suspended_rows():
        [resumed] = resume_now(box, row.instance_id)
        assert resumed.body is not None
        assert (resumed.data, resumed.body.content_type) == (body, content_type)
        expected = {Region: "EU", Priority: 3, BTS.MessageType: "order"}
        assert {prop: resumed.context.get(prop) for prop in expected} == expected


@pytest.mark.parametrize(("column", "resumable"), [(None, True), ("value", False)])
def test_a_bad_row_cannot_be_resumed_if_its_body_does_not_contain_the_promoted_values(
    box: Box, connection: Connection, tmp_path: Path, column: str | None, resumable: bool
) -> None:
    rows = ROWS.model_copy(update={"body": "json" if column is None else None, "column": column})
    location = add_bulk_location(box, tmp_path, pipeline=rows, bad_rows=2, format="json")
    receive_rows(
        Receiver(connection, RoutingTable()),
        location,
        rows,
        UNIT,
        [batch(1, bad=1)],
        progress=Progress(),
        bad_content_type="text/csv",
        limit=Unlimited(),
    )
    assert box.suspended() == [("PIPELINE", resumable)]
    description = box.read_error()
    assert ("Resume the instance with the correct message" if resumable else "send the row again") in description


def test_a_throttled_unit_ends_after_a_chunk_and_continues_later(
    box: Box, connection: Connection, location: ReceiveLocation
) -> None:
    """THR-05: every attempt publishes one more chunk, and nothing twice."""
    batches = [batch(1, 2), batch(3), batch(4, 5)]
    for published in (2, 1):
        received = receive(connection, location, batches, pace=lambda: False)
        assert (received.rows, received.unfinished) == (published, True)
    received = receive(connection, location, batches, pace=lambda: False)
    assert (received.rows, received.unfinished) == (2, False)
    assert box.count("messages") == 5


def test_the_receipts_of_a_file_are_kept_until_the_file_is_finished(box: Box, task: BulkTask) -> None:
    """A file with too many bad rows may wait for a long time."""
    task.receive(split(0, batch(1, 2), batch(3)))
    purge = "SELECT purge_receipts('7 days', now() + interval '30 days')"
    assert box.one(purge) == 0
    box.delete_all("file claims")
    assert box.one(purge) == 2
