"""A sink continues after its process died at any step. Each attempt dies one step later than the one before.

Tables of PostgreSQL are in tests/integration/spark/sinks, those by JDBC in test_sink_tables.py."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from postroom.adapters import SparkSink
from postroom.messagebox.connection import Login
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.sinks.sink_batches import SinkBatch, SinkQueue
from postroom.spark.sinks import file_sink
from postroom.spark.sinks.drain import Drain
from postroom.spark.sinks.file_sink import HadoopTarget, LocalTarget
from postroom.spark.sinks.writer import SparkWriter
from tests.support.box import Box
from tests.support.sinks import Killed, add_sink, drain_batch, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The owner of a function, its name, whether it has run when the process dies, and how often each message is written.
Step = tuple[Any, str, bool, int]

_WRITE: list[Step] = [(SparkWriter, "write", False, 0), (SparkWriter, "write", True, 0)]
LOCAL: list[Step] = [
    *_WRITE,
    (file_sink, "_sync", True, 0),
    (LocalTarget, "_log", False, 1),
    (LocalTarget, "_log", True, 1),
    (LocalTarget, "publish", True, 1),
    (SinkQueue, "complete", False, 1),
]
#: The tasks write Parquet files themselves.
LOCAL_PARQUET: list[Step] = [(LocalTarget, "stage", False, 0), *LOCAL]
HADOOP: list[Step] = [
    *_WRITE,
    (HadoopTarget, "_write_entry", False, 0),
    (HadoopTarget, "_write_entry", True, 1),
    (HadoopTarget, "publish", True, 1),
    (SinkQueue, "complete", False, 1),
]
OTHER: list[Step] = [
    (SparkWriter, "write", False, 0),
    (SparkWriter, "write", True, 1),
    (SinkQueue, "complete", False, 2),
]


@pytest.mark.parametrize(
    ("format", "place", "steps", "times"),
    [
        ("csv", "lake", LOCAL, 1),
        ("json", "lake", LOCAL, 1),
        ("parquet", "lake", LOCAL_PARQUET, 1),
        ("parquet", "file:{home}/lake", HADOOP, 1),
        # At least once: the rows of every finished attempt are written, with the ids of the messages.
        ("xml", "lake", OTHER, 3),
    ],
)
def test_a_restarted_sink_continues_the_interrupted_batch(
    session: SparkSession,
    box: Box,
    login: Login,
    tmp_path: Path,
    format: str,
    place: str,
    steps: list[Step],
    times: int,
) -> None:
    options = {"xml": {"rowTag": "message"}, "csv": {"header": "true"}}.get(format, {})
    add_sink(box, SparkSink(format, place.format(home=tmp_path), options=options))
    ids = publish(box, b"a", b"b")
    drain = Drain(SparkWriter(session, tmp_path), box.host(), login=login, home=tmp_path)
    for owner, name, after, times_written in steps:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(owner, name, _die_at(getattr(owner, name), name, after=after))
            with pytest.raises(Killed, match=name):
                drain_batch(drain, box)
        assert Counter(find_ids(tmp_path / "lake", format, is_logged=steps is HADOOP)) == Counter(
            ids * times_written
        ), (name, after)
    assert drain_batch(drain, box) == 2
    assert Counter(find_ids(tmp_path / "lake", format, is_logged=steps is HADOOP)) == Counter(ids * times)
    assert (box.count("sink batches"), box.count("queued"), box.count("suspended")) == (0, 0, 0)
    assert check(box.connection) == []


def test_a_truncated_log_entry_is_ignored_and_written_again(
    session: SparkSession, box: Box, login: Login, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies while it writes the entry."""
    add_sink(box, SparkSink("parquet", f"file:{tmp_path}/lake"))
    ids = publish(box, b"a")
    drain = Drain(SparkWriter(session, tmp_path), box.host(), login=login, home=tmp_path)
    whole = HadoopTarget._line
    for length in (0, 10):
        with monkeypatch.context() as patched:
            patched.setattr(HadoopTarget, "_write_entry", _die_at(HadoopTarget._write_entry, "cut short", after=True))
            patched.setattr(HadoopTarget, "_line", _truncate(whole, length))
            with pytest.raises(Killed, match="cut short"):
                drain_batch(drain, box)
        [entry] = (tmp_path / "lake" / "_postroom" / "log").glob("*.json")
        assert entry.stat().st_size == length
    assert drain_batch(drain, box) == 1
    assert list(find_ids(tmp_path / "lake", "parquet", is_logged=True)) == ids


def _truncate(line: Callable[..., bytes], length: int) -> Callable[..., bytes]:
    def cut(target: HadoopTarget, batch: SinkBatch) -> bytes:
        return line(target, batch)[:length]

    return cut


def _die_at(function: Callable[..., Any], name: str, *, after: bool) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        if after:
            function(*arguments, **named)
        raise Killed(name)

    return call


def find_ids(lake: Path, format: str, *, is_logged: bool) -> Iterable[str]:
    """Return the ids that a reader of the folder finds, or a reader of the log, which names the valid directories."""
    batches = [lake]
    if is_logged:
        entries = [entry.read_text() for entry in (lake / "_postroom" / "log").glob("*.json")]
        batches = [lake / json.loads(entry)["directory"] for entry in entries if entry.endswith("\n")]
    for batch in batches:
        for file in batch.rglob("part-*"):
            if not any(part.startswith(("_", ".")) for part in file.relative_to(lake).parts):
                yield from read_ids(file, format)


def read_ids(file: Path, format: str) -> Iterable[str]:
    match format:
        case "csv":
            return [row["message_id"] for row in csv.DictReader(file.read_text().splitlines())]
        case "json":
            return [json.loads(line)["message_id"] for line in file.read_text().splitlines()]
        case "parquet":
            return [str(message_id) for message_id in pq.read_table(file).column("message_id").to_pylist()]
        case _:
            return re.findall("<message_id>(.*?)</message_id>", file.read_text())
