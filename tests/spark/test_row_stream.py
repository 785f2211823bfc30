"""Every row of a stream is published once, by the offsets of Spark's checkpoint (ADR 0025)."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from postroom import Property, pipelines
from postroom.errors import StateError
from postroom.messagebox.connection import Login
from postroom.ports.receive_locations import ReceiveLocation
from postroom.spark.bulk.row_stream import StreamCheckpoint, start_row_stream
from postroom.spark.pipeline_process import PipelineProcess
from postroom.spark.receive.task import TALLY_METRIC
from tests.support.box import Box
from tests.support.bulk_location import add_bulk_location
from tests.support.waiting import PATIENCE, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Start = Callable[..., "StreamingQuery"]
Value = Property("Orders.Priority", int)


@pytest.fixture
def start(session: SparkSession, login: Login, tmp_path: Path) -> Iterator[Start]:
    started: list[StreamingQuery] = []

    def start_now(location: ReceiveLocation, **settings: Any) -> StreamingQuery:
        started.append(start_row_stream(session, location, login=login, home=tmp_path, **settings))
        return started[-1]

    yield start_now
    for query in started:
        query.stop()


def values(box: Box) -> Counter[int]:
    return Counter(json.loads(body)["value"] for body in box.bodies())


def test_a_stream_continues_where_it_stopped(box: Box, start: Start, tmp_path: Path, login: Login) -> None:
    box.add_port("Everything", "exists(Priority)")
    location = add_bulk_location(
        box,
        None,
        format="rate-micro-batch",
        schema=None,
        options={"rowsPerBatch": 50, "numPartitions": 2},
        pipeline=pipelines.Rows(promote={Value: "value"}),
    )
    query = start(location)
    wait_until(lambda: box.count("messages") >= 100, what="two batches")
    query.stop()
    first = sum(values(box).values())
    query = start(location)
    wait_until(lambda: box.count("messages") >= first + 100, what="two more batches")
    query.stop()
    wait_until(lambda: box.one("SELECT count(*) FROM pg_stat_activity WHERE state = 'active'") == 1, what="silence")
    found = values(box)
    assert set(found.values()) == {1}
    # The last batch was stopped, so it may be incomplete.
    whole = 50 * (max(found) // 50)
    assert set(range(whole)) <= found.keys()
    assert StreamCheckpoint.find(location, tmp_path, login).checkpoint.is_dir()


def register_halves(session: SparkSession, broken: Path) -> None:
    """Register a source of one batch in two partitions, or three if another file exists. The second partition blocks
    while ``broken`` exists."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    class Half(InputPartition):
        pass

    class Reader(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            return {"batch": 0}

        def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:  # noqa: N802
            return {"batch": 1}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
            if start["batch"] >= end["batch"]:
                return []
            return [Half(number) for number in range(3 if broken.with_name("more cores").exists() else 2)]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            for number in range(100):
                while partition.value == 1 and number == 60 and broken.exists():
                    time.sleep(0.05)
                yield (1000 * partition.value + number,)

    class Halves(DataSource):
        @classmethod
        def name(cls) -> str:
            return "halves"

        def schema(self) -> str:
            return "value int"

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
            return Reader()

    session.dataSource.register(Halves)


def test_an_interrupted_batch_is_finished_with_its_stored_read_plan(
    session: SparkSession, box: Box, start: Start, tmp_path: Path, login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken"
    broken.touch()
    register_halves(session, broken)
    box.add_port("Everything", "exists(Priority)")
    monkeypatch.setattr("postroom.spark.bulk.read_plan.CHUNK_ROWS", 20)
    location = add_bulk_location(
        box, None, format="halves", schema=None, pipeline=pipelines.Rows(promote={Value: "value"})
    )
    query = start(location, once=True)
    wait_until(lambda: box.count("messages") >= 100, what="the first half")
    query.stop()
    assert 100 <= box.count("messages") < 200
    folder = StreamCheckpoint.find(location, tmp_path, login)
    assert not folder.is_between_batches
    broken.unlink()
    (tmp_path / "more cores").touch()
    with pytest.raises(Exception, match="was started with 2 partitions, and is repeated with 3"):
        start(location, once=True).awaitTermination(120)
    (tmp_path / "more cores").unlink()
    with pytest.raises(StateError, match=r"checkpoint of the stream .* is not in"):
        start_row_stream(session, location, login=login, home=tmp_path / "another home")
    before = box.count("messages")
    assert before < 200
    # Chunks have another size now, and rows other messages, but not those of the interrupted batch.
    monkeypatch.setattr("postroom.spark.bulk.read_plan.CHUNK_ROWS", 33)
    query = start(location.replace_settings(pipeline={**location.definition["pipeline"], "body": "csv"}))
    assert query.awaitTermination(PATIENCE)
    assert values(box) == Counter([*range(100), *range(1000, 1100)])
    tallies = [progress.observedMetrics[TALLY_METRIC] for progress in query.recentProgress if progress.observedMetrics]
    assert sum(tally.published for tally in tallies) == 200 - before
    # These are kept until the next batch begins, because this one might come again.
    assert box.count("received stream units") == 2
    assert folder.is_between_batches
    process = PipelineProcess(session, box.host(), login=login, home=tmp_path, once=True)
    assert process.run(threading.Event()).total() == 0
    assert "33" in (folder.folder / "reading.json").read_text()
