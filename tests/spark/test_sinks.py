"""Spark sinks with a real session."""

from __future__ import annotations

import base64
import gzip
import json
import threading
import uuid
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from runpy import run_path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from postroom import Application, Throttling, adapters, pipelines
from postroom.adapters import SinkDefinition, SparkSink, SparkTable
from postroom.agent.streaming.interchange import CHUNK_ROWS
from postroom.maps import Python
from postroom.maps.port_maps import PortMaps
from postroom.message import Message
from postroom.messagebox.configuration.hosts import find_host
from postroom.messagebox.connection import Login, connect
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.sinks.sink_batches import SinkBatch, SinkQueue
from postroom.operations.deployment.apply import apply
from postroom.pipelines import Send, components
from postroom.spark.pipeline_process import PipelineProcess
from postroom.spark.sinks.file_sink import HadoopTarget, LocalTarget, format_name
from postroom.spark.sinks.running_sinks import Sinks
from postroom.system_properties import BTS
from tests.support.box import PROMOTE, Box, Priority, Region, Total
from tests.support.file_location import add_file_location
from tests.support.host_settings import set_thresholds
from tests.support.simulated_load import set_load
from tests.support.sinks import add_sink, drain_sinks, publish
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {"region": Region, "total": Total, "priority": Priority}
ORDER = b'{"id": 7, "lines": [{"sku": "a"}],\n "total": 12.50}'


def orders(box: Box) -> list[str]:
    """Publish two valid orders and one that is not JSON. Return the ids of the valid ones."""
    promoted = {Region: "EU", Total: Decimal("12.50"), Priority: 1}
    messages = [Message.of(ORDER, promoted=promoted), Message.of(b'{"id": 8}', promoted={Region: "US"})]
    agent = box.agent()
    good = [str(message.message_id) for message in agent.publish(messages)]
    agent.publish([Message.of(b"no JSON", promoted={Region: "EU"})])
    return good


def drain(session: SparkSession, box: Box, login: Login, home: Path) -> int:
    sinks = Sinks(session, box.host(), login=login, home=home, once=True)
    drain_sinks(sinks, box.connection)
    return sinks.counts["written"]


def test_a_batch_is_written_as_parquet_files(session: SparkSession, box: Box, login: Login, tmp_path: Path) -> None:
    sink = SparkSink(
        "parquet", "lake", columns=COLUMNS, partition_by=[Region], parse="id BIGINT, lines ARRAY<STRUCT<sku: STRING>>"
    )
    add_sink(box, sink)
    ids = orders(box)
    # Readers ignore the tombstone of an abandoned batch.
    given_up = SinkBatch(batch_id=uuid.uuid4(), number=0, attempt=1, sink={}, seqs=(1,), tries=(0,))
    assert LocalTarget(str(tmp_path / "lake")).abandon(given_up)
    assert drain(session, box, login, tmp_path) == 2
    rows = {row["message_id"]: row for row in session.read.parquet(str(tmp_path / "lake")).collect()}
    assert set(rows) == set(ids)
    order = rows[ids[0]]
    assert (order["region"], order["total"], order["priority"], order["id"]) == ("EU", Decimal("12.5"), 1, 7)
    assert (order["lines"][0]["sku"], bytes(order["body"])) == ("a", ORDER)
    assert order["batch"].startswith("000000000001-")
    assert box.suspended() == [("DELIVERY_REFUSED", True)]
    assert check(box.connection) == []


def test_the_tasks_write_parquet_files_without_partitions(
    session: SparkSession, box: Box, login: Login, tmp_path: Path
) -> None:
    sink = SparkSink("parquet", "lake", columns=COLUMNS, parse="id BIGINT", options={"compression": "zstd"})
    add_sink(box, sink)
    ids = orders(box)
    assert drain(session, box, login, tmp_path) == 2
    found = session.read.parquet(str(tmp_path / "lake"))
    assert found.drop("batch").dtypes == [
        *[(name, "string") for name in ("message_id", "interchange_id", "message_type")],
        ("received_at", "timestamp"),
        ("region", "string"),
        ("total", "decimal(38,18)"),
        ("priority", "bigint"),
        ("id", "bigint"),
        ("body", "binary"),
    ]
    rows = {row["message_id"]: row for row in found.collect()}
    assert set(rows) == set(ids)
    order = rows[ids[0]]
    assert (order["region"], order["total"], order["priority"], order["id"]) == ("EU", Decimal("12.5"), 1, 7)
    assert bytes(order["body"]) == ORDER
    for file in (tmp_path / "lake").glob("batch=*/*"):
        described = pq.read_metadata(file)
        assert (described.created_by.split()[0], described.row_group(0).column(0).compression) == (
            "parquet-cpp-arrow",
            "ZSTD",
        )


@pytest.mark.parametrize("format", ["csv", "json"])
def test_a_batch_is_written_as_text_files(
    session: SparkSession, box: Box, login: Login, tmp_path: Path, format: str
) -> None:
    options = {"header": "true", "escape": '"'} if format == "csv" else {}
    add_sink(box, SparkSink(format, "lake", columns=[Region], options=options))
    ids = publish(box, b'say "hi",\nand bye', b"b")
    assert drain(session, box, login, tmp_path) == 2
    reader = session.read.option("multiLine", format == "csv").options(**options)
    rows = reader.format(format).load(str(tmp_path / "lake")).collect()
    assert {row["message_id"]: row["body"] for row in rows} == {ids[0]: 'say "hi",\nand bye', ids[1]: "b"}


def test_a_batch_is_written_where_directories_cannot_be_renamed(
    session: SparkSession, box: Box, login: Login, tmp_path: Path
) -> None:
    """Every attempt has its own directory, and the log names the valid one."""
    target = (tmp_path / "store").as_uri()
    add_sink(box, SparkSink("parquet", target))
    ids = publish(box, b"a")
    port = box.port()
    # An attempt died after it had written.
    batch = SinkQueue("Default").open_batch(box.connection, port.port_id, limit=10, sink=port.adapter_json)
    assert batch is not None
    assert drain(session, box, login, tmp_path) == 1
    log = session.read.json(f"{target}/_postroom/log").collect()
    [directory] = [row["directory"] for row in log]
    assert directory.endswith("-000002")
    rows = session.read.option("basePath", target).parquet(f"{target}/{directory}").collect()
    assert [row["message_id"] for row in rows] == ids


def test_dead_and_late_attempts_are_ignored_where_directories_cannot_be_renamed(
    session: SparkSession, tmp_path: Path
) -> None:
    target = HadoopTarget(session, (tmp_path / "store").as_uri())
    first = SinkBatch(batch_id=uuid.uuid4(), number=1, attempt=1, sink={}, seqs=(1,), tries=(0,))
    second, third = replace(first, attempt=2), replace(first, attempt=3)

    def write(batch: SinkBatch) -> None:
        session.range(1).write.mode("overwrite").parquet(target.staging(batch))

    write(first)  # and the process dies
    assert not target.is_published(second)
    write(second)
    log = tmp_path / "store" / "_postroom" / "log" / f"{format_name(first)}.json"
    log.parent.mkdir(parents=True)
    log.write_bytes(b'{"batch": ')  # and the process dies while it writes the log
    assert not target.is_published(third)
    write(third)
    target.publish(third)
    assert json.loads(log.read_text())["directory"] == f"batch={format_name(first)}-000003"
    write(second)  # by a process that was presumed dead
    target.publish(second)
    assert json.loads(log.read_text())["directory"] == f"batch={format_name(first)}-000003"
    assert target.is_published(replace(first, attempt=4))
    target.discard(second)
    directories = [path.name for path in (tmp_path / "store").iterdir() if path.name.startswith("batch=")]
    assert directories == [f"batch={format_name(first)}-000003"]


def test_a_batch_is_written_to_postgresql_and_to_another_format(
    session: SparkSession, box: Box, login: Login, tmp_path: Path
) -> None:
    box.connection.execute("CREATE SCHEMA IF NOT EXISTS public")
    table = SparkTable(box.url, "public.orders", columns=COLUMNS, parse="lines ARRAY<STRUCT<sku: STRING>>", body="text")
    sinks: dict[str, SinkDefinition] = {
        "Table": table,
        "Xml": SparkSink("xml", "documents", options={"rowTag": "message", "rootTag": "messages"}),
    }
    for name, sink in sinks.items():
        add_sink(box, sink, name=name)
    ids = orders(box)
    assert drain(session, box, login, tmp_path) == 5
    rows = box.connection.execute(
        "SELECT message_id::text, region, total, lines #>> '{0,sku}', body FROM public.orders ORDER BY priority"
    ).fetchall()
    assert rows[0] == (ids[0], "EU", Decimal("12.5"), "a", ORDER.decode())
    assert {row[0] for row in rows} == set(ids)
    documents = session.read.format("xml").option("rowTag", "message").load(str(tmp_path / "documents"))
    assert {row["message_id"] for row in documents.collect()} > set(ids)


def test_a_pipeline_process_drains_its_sinks_until_it_is_stopped(
    session: SparkSession, box: Box, login: Login, tmp_path: Path
) -> None:
    add_sink(box, SparkSink("parquet", "lake", max_messages=2, interval=0))
    ids = publish(box, b"a", b"b", b"c")
    stop = threading.Event()
    counts: Counter[str] = Counter()
    process = PipelineProcess(session, box.host(), login=login, home=tmp_path)
    thread = threading.Thread(target=lambda: counts.update(process.run(stop)))
    thread.start()
    try:
        wait_until(lambda: box.count("queued") == 0, what="the queue to be empty")
        ids += publish(box, b"d")
        wait_until(lambda: box.count("queued") == 0, what="the queue to be empty")
    finally:
        stop.set()
        thread.join()
    assert counts["written"] == 4
    rows = session.read.parquet(str(tmp_path / "lake")).collect()
    assert Counter(row["message_id"] for row in rows) == Counter(ids)
    assert uuid.UUID(rows[0]["message_id"])


def test_files_are_received_and_written_to_a_sink_in_one_run(
    session: SparkSession, database: str, tmp_path: Path
) -> None:
    """One run of the pipeline receives the dropped files and writes their messages."""
    app = Application("orders")
    app.receive_port("OrdersIn").location(
        "drop", adapters.File("in", settle=0), pipeline=pipelines.Json(promote={Region: "region", Total: "total"})
    )
    lake = adapters.SparkSink("parquet", "out/lake", columns={"total": Total}, partition_by=[Region], body="text")
    app.send_port("Lake", lake, filter=Region.exists())
    (tmp_path / "in").mkdir()
    for n, region in enumerate(("EU", "US", "EU")):
        (tmp_path / "in" / f"{n}.json").write_text(f'{{"region": "{region}", "total": {n}.5}}')
    with connect(database) as connection:
        apply(connection, app.definition(), home=tmp_path)
        host = find_host(connection, "Main")
        login = Login(url=database, user=host.role_name)
        process = PipelineProcess(session, host, login=login, home=tmp_path, once=True)
        counts = process.run(threading.Event())
        assert (counts["published"], counts["written"]) == (3, 3)
        assert check(connection) == []
    rows = session.read.parquet(str(tmp_path / "out" / "lake")).orderBy("total").collect()
    assert [(row["Region"], row["total"]) for row in rows] == [
        ("EU", Decimal("0.5")),
        ("US", Decimal("1.5")),
        ("EU", Decimal("2.5")),
    ]
    assert rows[0]["body"] == '{"region": "EU", "total": 0.5}'
    assert all(row["interchange_id"] for row in rows)


def test_a_sink_is_drained_while_receive_tasks_are_throttled(
    session: SparkSession, box: Box, login: Login, tmp_path: Path
) -> None:
    """THR-05: two large files on two cores, and more waiting messages than the threshold."""
    set_thresholds(box.connection, box.host().host_id, Throttling(messages=1_000, longest_delay=300))
    set_load(box, queued=1_500)
    add_sink(box, SparkSink("parquet", "lake", interval=0, body="none"))
    add_file_location(box, tmp_path / "in", pipeline=pipelines.JsonLines(promote=PROMOTE))
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        (tmp_path / "in" / name).write_bytes(b'{"region": "EU"}\n' * (CHUNK_ROWS + 1))
    process = PipelineProcess(session, box.host(), login=login, home=tmp_path)
    stopping = threading.Event()
    thread = threading.Thread(target=process.run, args=(stopping,))
    thread.start()

    def wait_for(count: int) -> None:
        wait_until(lambda: process._sinks.counts["written"] >= count, what=f"{count} messages in the lake")

    try:
        wait_for(2 * CHUNK_ROWS)
        assert box.count("file claims") == 2, (
            "neither file is published to its end, and the tasks have left their cores"
        )
        set_load(box, queued=0)
        wait_for(2 * CHUNK_ROWS + 2)
    finally:
        stopping.set()
        thread.join()
    assert session.read.parquet(str(tmp_path / "lake")).select("message_id").distinct().count() == 2 * CHUNK_ROWS + 2


DEADLY = """
import os

from postroom.message import Message


def to_row(message: Message) -> bytes:
    if b"poison" in message.data:
        os._exit(3)
    return message.data
"""


def test_a_send_pipeline_runs_in_the_workers(session: SparkSession, box: Box, login: Login, tmp_path: Path) -> None:
    """The same definition runs in hosts. Its files are shipped with the port."""
    (tmp_path / "own.py").write_text("def shout(message):\n    return message.data.upper()\n")
    shout = run_path(str(tmp_path / "own.py"), run_name="own")["shout"]
    pipeline = Send(pre_assemble=[shout], encode=[components.GzipEncoder(), components.Base64Encoder(line_length=0)])
    add_sink(box, SparkSink("parquet", "lake", body="text"))
    stored = pipeline.pack(tmp_path).model_dump(mode="json")
    box.set_ports(pipeline=stored)
    (tmp_path / "own.py").unlink()
    box.agent().publish([Message.of(body, promoted={Region: "EU"}) for body in (b"a", b"b")])
    assert drain(session, box, login, tmp_path) == 2
    rows = session.read.parquet(str(tmp_path / "lake")).collect()
    assert sorted(gzip.decompress(base64.b64decode(row["body"])) for row in rows) == [b"A", b"B"]


def test_a_message_that_kills_its_worker_is_suspended_alone(
    session: SparkSession, box: Box, login: Login, tmp_path: Path
) -> None:
    """A crash in a C library or an out-of-memory kill has the same effect."""
    (tmp_path / "deadly.py").write_text(DEADLY)
    to_row = run_path(str(tmp_path / "deadly.py"), run_name="deadly")["to_row"]
    maps = PortMaps.pack([Python(to_row, source="order", target="row")], tmp_path)
    add_sink(box, SparkSink("parquet", "lake"), retry_count=0)
    box.set_ports(maps=maps.model_dump(mode="json"))
    promoted = {Region: "EU", BTS.MessageType: "order"}
    box.agent().publish([Message.of(body, promoted=promoted) for body in (b"a", b"poison", b"z")])
    assert drain(session, box, login, tmp_path) == 2
    rows = session.read.parquet(str(tmp_path / "lake")).collect()
    assert sorted(bytes(row["body"]) for row in rows) == [b"a", b"z"]
    assert box.suspended() == [("DELIVERY_REFUSED", True)]
    assert "The worker that processed it died at every attempt" in box.read_error()
