"""A batch that is interrupted between any two steps is written once."""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from postroom.adapters import SinkDefinition, SparkSink, SparkTable
from postroom.errors import ClaimLost, Unavailable
from postroom.maps import Xslt
from postroom.maps.port_maps import PortMaps
from postroom.maps.running import RunningMaps
from postroom.message import Message
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.sinks.sink_batches import to_lock_number
from postroom.pipelines import Send, components
from postroom.spark.sinks.file_sink import LocalTarget
from postroom.spark.sinks.jdbc import merge_statement
from postroom.spark.sinks.postgres_table import Table
from postroom.system_properties import BTS
from tests.support.box import Box, Region
from tests.support.sinks import Killed, add_sink, drain_batch, make_drain, publish, read_lake, read_port_id


def die_at(step: str) -> Callable[[str], None]:
    def at(now: str) -> None:
        if now == step:
            raise Killed(step)

    return at


def read_ids(box: Box, sink: SinkDefinition, home: Path) -> Counter[str]:
    if isinstance(sink, SparkTable):
        rows = box.connection.execute("SELECT message_id::text FROM public.orders").fetchall()
        return Counter(message_id for (message_id,) in rows)
    return Counter(str(row["message_id"]) for row in read_lake(home / "lake"))


def make_sink(kind: str, box: Box) -> SinkDefinition:
    box.connection.execute("CREATE SCHEMA IF NOT EXISTS public")
    if kind == "table":
        return SparkTable(box.url, "public.orders", columns=[Region], max_messages=2)
    return SparkSink("parquet" if kind == "files" else "delta", "lake", partition_by=[Region], max_messages=2)


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        *(("files", step) for step in ("begin", "written", "published", "completed")),
        *(("table", step) for step in ("begin", "written", "completed")),
        *(("other", step) for step in ("begin", "written", "completed")),
    ],
)
def test_the_next_process_continues_the_interrupted_batch(box: Box, kind: str, step: str, tmp_path: Path) -> None:
    """The process dies at a step, and the next process drains the rest."""
    sink = make_sink(kind, box)
    add_sink(box, sink)
    ids = publish(box, b"a", b"b", b"c")
    drain = make_drain(box, tmp_path, die_at(step))
    if step == "completed":
        drain.queue.complete = _die_after(drain.queue.complete)  # type: ignore[method-assign]
    with pytest.raises(Killed):
        drain_batch(drain, box)
    next_drain = make_drain(box, tmp_path)
    counts = []
    while (count := drain_batch(next_drain, box)) is not None:
        counts.append(count)
    assert counts == ([1] if step == "completed" else [2, 1])
    found = read_ids(box, sink, tmp_path)
    if kind == "other":
        # At least once: rows that were written before the process died may be repeated, with the same message id.
        assert set(found) == set(ids)
        assert found.total() == (5 if step == "written" else 3)
    else:
        assert found == Counter(ids)
    assert box.count("sink batches") == 0
    assert check(box.connection) == []


def _die_after(complete: Callable[..., int]) -> Callable[..., int]:
    def completed(*arguments: object) -> int:
        complete(*arguments)
        raise Killed("completed")

    return completed


def _die(*_: object) -> None:
    raise Killed("before the failure of the batch is stored")


def test_directories_are_published_complete_and_logged(box: Box, tmp_path: Path) -> None:
    add_sink(box, SparkSink("parquet", "lake", partition_by=[Region], max_messages=2))
    publish(box, b"a", region="EU")
    publish(box, b"b", region="US")
    drain = make_drain(box, tmp_path)
    assert drain_batch(drain, box) == 2
    [directory] = [entry for entry in (tmp_path / "lake").iterdir() if entry.name.startswith("batch=")]
    assert sorted(entry.name for entry in directory.iterdir() if entry.is_dir()) == ["Region=EU", "Region=US"]
    [entry] = (tmp_path / "lake" / "_postroom" / "log").iterdir()
    assert json.loads(entry.read_text())["directory"] == directory.name
    assert list((tmp_path / "lake" / "_postroom" / "staging").iterdir()) == []
    rows = {row["Region"]: row for row in read_lake(tmp_path / "lake")}
    assert rows["EU"]["body"] == b"a"
    assert rows["US"]["received_at"] is not None


def test_a_late_attempt_adds_nothing(box: Box, tmp_path: Path) -> None:
    """A process that was presumed dead continues after another one has written its batch."""
    add_sink(box, SparkSink("parquet", "lake"))
    ids = publish(box, b"a")

    def take_over(step: str) -> None:
        if step == "written":
            assert drain_batch(make_drain(box, tmp_path), box) == 1

    with pytest.raises(ClaimLost):
        drain_batch(make_drain(box, tmp_path, take_over), box)
    assert Counter(str(row["message_id"]) for row in read_lake(tmp_path / "lake")) == Counter(ids)


def test_a_late_attempt_cannot_publish_an_abandoned_batch(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was presumed dead is about to rename when another one has abandoned the batch. The messages are
    in another batch then, so this one must not appear."""
    add_sink(box, SparkSink("parquet", "lake"), retry_seconds=0)
    ids = publish(box, b"a")

    def fail(step: str) -> None:
        raise RuntimeError("the job was aborted")

    def abandon(step: str) -> None:
        if step == "written":
            with monkeypatch.context() as patched:
                # As if the late process had written after this.
                patched.setattr(LocalTarget, "discard", lambda *_: None)
                assert drain_batch(make_drain(box, tmp_path, fail), box) == 0
            assert read_lake(tmp_path / "lake") == []

    with pytest.raises(ClaimLost, match="abandoned"):
        drain_batch(make_drain(box, tmp_path, abandon), box)
    assert read_lake(tmp_path / "lake") == []
    drain = make_drain(box, tmp_path)
    assert drain.queue.find_waiting_ports(box.connection) == {read_port_id(box)}
    assert drain_batch(drain, box) == 1
    assert Counter(str(row["message_id"]) for row in read_lake(tmp_path / "lake")) == Counter(ids)


def test_the_next_process_writes_a_batch_whose_process_died_after_abandoning_it(box: Box, tmp_path: Path) -> None:
    add_sink(box, SparkSink("parquet", "lake"))
    ids = publish(box, b"a")

    def fail(step: str) -> None:
        raise RuntimeError("the job was aborted")

    drain = make_drain(box, tmp_path, fail)
    drain.queue.fail = _die  # type: ignore[method-assign, assignment]
    for _ in range(2):
        with pytest.raises(Killed):
            drain_batch(drain, box)
        assert read_lake(tmp_path / "lake") == []
    assert drain_batch(make_drain(box, tmp_path), box) == 1
    assert Counter(str(row["message_id"]) for row in read_lake(tmp_path / "lake")) == Counter(ids)


def test_tombstones_are_removed_after_a_day(box: Box, tmp_path: Path) -> None:
    add_sink(box, SparkSink("parquet", "lake"), retry_seconds=0)
    publish(box, b"a")

    def fail(step: str) -> None:
        raise RuntimeError("the job was aborted")

    assert drain_batch(make_drain(box, tmp_path, fail), box) == 0
    [tombstone] = (tmp_path / "lake").glob("batch=*")
    [entry] = (tmp_path / "lake" / "_postroom" / "abandoned").iterdir()
    drain = make_drain(box, tmp_path)
    assert drain.queue.find_waiting_ports(box.connection)
    assert drain_batch(drain, box) == 1
    assert tombstone.is_dir()
    os.utime(entry, (0, 0))
    publish(box, b"b")
    assert drain_batch(drain, box) == 1
    assert not tombstone.exists()
    assert not entry.exists()
    assert len(read_lake(tmp_path / "lake")) == 2


def test_a_published_batch_is_not_abandoned(box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full when the log is written. The directory is published, so the batch is kept."""
    add_sink(box, SparkSink("parquet", "lake"))
    ids = publish(box, b"a")
    with monkeypatch.context() as patched:

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        patched.setattr(LocalTarget, "_log", full)
        with pytest.raises(OSError, match="No space"):
            drain_batch(make_drain(box, tmp_path), box)
    assert box.count("sink batches") == 1
    assert drain_batch(make_drain(box, tmp_path), box) == 1
    assert Counter(str(row["message_id"]) for row in read_lake(tmp_path / "lake")) == Counter(ids)


def test_a_message_that_cannot_be_converted_is_suspended_alone(box: Box, tmp_path: Path) -> None:
    add_sink(box, SparkSink("parquet", "lake", body="text"))
    good, bad = publish(box, b"good", b"\xff\xfe")
    assert drain_batch(make_drain(box, tmp_path), box) == 1
    assert [row["message_id"] for row in read_lake(tmp_path / "lake")] == [good]
    [row] = box.suspended_rows()
    assert (str(row.message_id), row.error_code, row.adapter) == (bad, "DELIVERY_REFUSED", "spark_sink")


def test_a_message_that_makes_a_map_fail_is_suspended_alone(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any exception affects one message only. The others are written."""

    def mapped(maps: RunningMaps, message: Message) -> Message:
        if message.body is not None and b"".join(message.body.body.chunks()) == b"bad":
            raise KeyError("lines")
        return message

    monkeypatch.setattr(RunningMaps, "map_message", mapped)
    add_sink(box, SparkSink("parquet", "lake"))
    add_map(box, tmp_path)
    first, bad, last = publish(box, b"a", b"bad", b"b")
    assert drain_batch(make_drain(box, tmp_path), box) == 2
    assert [row["message_id"] for row in read_lake(tmp_path / "lake")] == [first, last]
    [row] = box.suspended_rows()
    assert str(row.message_id) == bad
    assert "KeyError: 'lines'" in row.error_description


def test_a_message_that_cannot_be_converted_is_routed_if_the_port_routes_failures(box: Box, tmp_path: Path) -> None:
    add_sink(box, SparkSink("parquet", "lake", body="text"), route_failures=True)
    box.add_port("Errors", "ErrorReport.ErrorType == 'FailedMessage'")
    publish(box, b"\xff\xfe")
    assert drain_batch(make_drain(box, tmp_path), box) == 0
    assert box.queued() == {"Errors": 1}
    assert box.suspended() == []


def consume_empty(message: Message) -> Message | None:
    return None if message.data == b'{"region":"EU"}' else message


def add_map(box: Box, home: Path) -> None:
    """Add a map of orders to invoices to all send ports."""
    (home / "map.xslt").write_text(
        '<invoice xsl:version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">'
        '<xsl:value-of select="/order"/></invoice>'
    )
    maps = PortMaps.pack([Xslt("map.xslt", source="order", target="invoice")], home)
    box.set_ports(maps=maps.model_dump(mode="json"))


def test_rows_are_made_from_the_output_of_the_port_maps(box: Box, tmp_path: Path) -> None:
    """A message that cannot be mapped is suspended alone (SND-01, SND-03)."""
    add_sink(box, SparkSink("parquet", "lake", body="text", columns=[BTS.MessageType]))
    add_map(box, tmp_path)
    promoted = {Region: "EU", BTS.MessageType: "order"}
    box.agent().publish([Message.of(body, promoted=promoted) for body in (b"<order>5</order>", b"no XML")])
    assert drain_batch(make_drain(box, tmp_path), box) == 1
    [row] = read_lake(tmp_path / "lake")
    assert (row["body"], row["MessageType"]) == ('<?xml version="1.0"?>\n<invoice>5</invoice>\n', "invoice")
    assert box.suspended() == [("MAP", True)]


def test_rows_are_made_from_the_output_of_the_send_pipeline(box: Box, tmp_path: Path) -> None:
    """A message that the pipeline consumes is completed without a row, and one that fails is suspended alone (SND-02,
    SND-03)."""
    add_sink(box, SparkSink("parquet", "lake", body="text"))
    pipeline = Send(assemble=components.JsonAssembler(demote={Region: "region"}), encode=[consume_empty])
    box.set_ports(pipeline=pipeline.model_dump(mode="json"))
    good, _, _ = publish(box, b'{"n": 1}', b"{}", b"no JSON")
    assert drain_batch(make_drain(box, tmp_path), box) == 2
    rows = read_lake(tmp_path / "lake")
    assert [(row["message_id"], row["body"]) for row in rows] == [(good, '{"n":1,"region":"EU"}')]
    assert box.suspended() == [("PIPELINE", True)]
    assert (box.count("queued"), box.count("sink batches")) == (0, 0)
    assert check(box.connection) == []


def test_a_large_body_is_read_from_its_fragments(box: Box, tmp_path: Path) -> None:
    add_sink(box, SparkSink("parquet", "lake"))
    publish(box, b"x" * 250_000)
    assert drain_batch(make_drain(box, tmp_path), box) == 1
    assert [row["body"] for row in read_lake(tmp_path / "lake")] == [b"x" * 250_000]


def test_an_unavailable_sink_is_retried_by_the_port_policy(box: Box, tmp_path: Path) -> None:
    add_sink(
        box,
        SparkTable(f"postgresql:///nowhere?host={tmp_path}", "orders"),
        retry_count=1,
        retry_seconds=0,
    )
    publish(box, b"a")
    drain = make_drain(box, tmp_path)
    assert drain_batch(drain, box) == 0
    assert (box.count("scheduled"), box.count("sink batches")) == (1, 0)
    assert drain.queue.find_waiting_ports(box.connection) == {read_port_id(box)}
    assert drain_batch(drain, box) == 0
    assert box.suspended() == [(Unavailable.code, True)]
    assert check(box.connection) == []


def test_the_files_of_a_failed_attempt_are_removed(box: Box, tmp_path: Path) -> None:
    add_sink(box, SparkSink("parquet", "lake"), retry_seconds=0)
    publish(box, b"a")

    def fail(step: str) -> None:
        if step == "written":
            raise RuntimeError("the job was aborted")

    assert drain_batch(make_drain(box, tmp_path, fail), box) == 0
    assert list((tmp_path / "lake" / "_postroom" / "staging").iterdir()) == []
    assert box.scheduled_rows()[0].error_description.splitlines() == [
        "The batch could not be written.",
        "the job was aborted",
        "It is retried by the port's policy. The log of the pipeline has the details.",
    ]
    drain = make_drain(box, tmp_path)
    assert drain.queue.find_waiting_ports(box.connection) == {read_port_id(box)}
    assert drain_batch(drain, box) == 1


def test_the_description_after_the_last_retry_does_not_announce_a_retry(box: Box, tmp_path: Path) -> None:
    """Spark's report of a failed job is reduced to its cause."""
    add_sink(box, SparkSink("parquet", "lake"), retry_count=0)
    publish(box, b"a")

    def fail(step: str) -> None:
        raise RuntimeError(
            "An error occurred while calling o396.save.\n: org.apache.spark.SparkClassNotFoundException: "
            "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: nosuch. SQLSTATE: 42K02\n\tat org.apache.spark.X\n"
        )

    assert drain_batch(make_drain(box, tmp_path, fail), box) == 0
    assert box.read_error().splitlines() == [
        "The batch could not be written.",
        "Failed to find the data source: nosuch.",
        "Fix the sink and resume the instance. The log of the pipeline has the details.",
    ]


def test_a_connection_that_is_lost_before_the_commit_adds_no_row_twice(box: Box, tmp_path: Path) -> None:
    """The connection ends between the merge and its commit. The rows are written again, once."""
    box.connection.execute("CREATE SCHEMA IF NOT EXISTS public")
    box.connection.execute(
        "CREATE TABLE public.orders (message_id text UNIQUE, interchange_id text, message_type text,"
        " received_at timestamptz, body bytea)"
    )
    box.connection.execute("CREATE SEQUENCE public.times")
    box.connection.execute(
        "CREATE FUNCTION public.disconnect() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF nextval('public.times') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;"
        " RETURN NULL; END $$"
    )
    box.connection.execute(
        "CREATE CONSTRAINT TRIGGER disconnect AFTER INSERT ON public.orders DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION public.disconnect()"
    )
    sink = SparkTable(box.url, "public.orders")
    add_sink(box, sink, retry_seconds=0)
    ids = publish(box, b"a", b"b")
    drain = make_drain(box, tmp_path)
    assert drain_batch(drain, box) == 0
    assert read_ids(box, sink, tmp_path) == Counter()
    assert drain.queue.find_waiting_ports(box.connection) == {read_port_id(box)}
    assert drain_batch(drain, box) == 2
    assert read_ids(box, sink, tmp_path) == Counter(ids)


def test_a_row_that_the_table_rejects_is_suspended_alone(box: Box, tmp_path: Path) -> None:
    box.connection.execute("CREATE SCHEMA IF NOT EXISTS public")
    box.connection.execute(
        "CREATE TABLE public.orders (message_id uuid PRIMARY KEY, interchange_id text, message_type text,"
        " received_at timestamptz, body bytea CHECK (length(body) < 5))"
    )
    sink = SparkTable(box.url, "public.orders")
    add_sink(box, sink)
    bodies = [b"too long" if n in (3, 7, 8) else b"good" for n in range(11)]
    ids = publish(box, *bodies)
    bad = [ids[3], ids[7], ids[8]]
    assert drain_batch(make_drain(box, tmp_path), box) == 8
    assert read_ids(box, sink, tmp_path) == Counter(ids) - Counter(bad)
    assert [str(row.message_id) for row in box.suspended_rows()] == bad


def test_numbers_and_dates_in_structures_are_json(box: Box) -> None:
    lines = pa.list_(pa.struct([("price", pa.decimal128(10, 2)), ("on", pa.date32())]))
    table = Table(url=box.url, name="public.orders")
    box.connection.execute("CREATE SCHEMA IF NOT EXISTS public")
    schema = pa.schema([("message_id", pa.string()), ("lines", lines)])
    table.prepare(schema)
    row = {"message_id": str(uuid.uuid4()), "lines": [{"price": Decimal("1.50"), "on": date(2026, 1, 31)}]}
    with table.connect() as target:
        table.add(target, pa.RecordBatch.from_pylist([row], schema=schema))
    assert box.one("SELECT lines::text FROM public.orders") == '[{"on": "2026-01-31", "price": 1.50}]'


def test_the_merge_statement_works_in_postgresql(box: Box) -> None:
    """Other tests run the same statement in Derby, by JDBC."""
    box.connection.execute("CREATE SCHEMA IF NOT EXISTS public")
    box.connection.execute('CREATE TABLE public.target ("message_id" text PRIMARY KEY, "Body" text)')
    box.connection.execute(
        'CREATE TABLE public.staged ("message_id" text, "body" text, "postroom_task" bigint, "postroom_seq" bigint)'
    )
    staged = [("a", "1", 7, 1), ("a", "2", 9, 1), ("b", "3", 8, 2), ("c", "4", 8, 3)]
    with box.connection.cursor() as cursor:
        cursor.executemany("INSERT INTO public.staged VALUES (%s, %s, %s, %s)", staged)
    names = {"key": '"message_id"', "task": '"postroom_task"', "seq": '"postroom_seq"'}
    columns = {'"message_id"': '"message_id"', '"body"': '"Body"'}
    counts = []
    for of in ((1, 2), None, None):
        statement = merge_statement("public.target", "public.staged", columns, **names, of=of)
        counts.append(box.connection.execute(statement.encode()).rowcount)
    assert counts == [2, 1, 0]
    rows = box.connection.execute("SELECT * FROM public.target ORDER BY 1").fetchall()
    assert rows == [("a", "1"), ("b", "3"), ("c", "4")]


def test_a_table_without_a_unique_index_is_rejected(box: Box, tmp_path: Path) -> None:
    box.connection.execute("CREATE SCHEMA IF NOT EXISTS public")
    box.connection.execute("CREATE TABLE public.orders (message_id text)")
    add_sink(box, SparkTable(box.url, "public.orders"))
    publish(box, b"a")
    assert drain_batch(make_drain(box, tmp_path), box) == 0
    assert "no unique index" in box.read_error()


def test_a_batch_keeps_its_target_when_the_sink_changes(box: Box, tmp_path: Path) -> None:
    """Otherwise a sink that changes between two attempts would write a batch to both targets."""
    add_sink(box, SparkSink("parquet", "lake"))
    ids = publish(box, b"a")
    with pytest.raises(Killed):
        drain_batch(make_drain(box, tmp_path, die_at("published")), box)
    box.merge_port(adapter={"path": "elsewhere"})
    publish(box, b"b")
    drain = make_drain(box, tmp_path)
    assert [drain_batch(drain, box) for _ in range(3)] == [1, 1, None]
    assert [row["message_id"] for row in read_lake(tmp_path / "lake")] == ids
    assert [row["body"] for row in read_lake(tmp_path / "elsewhere")] == [b"b"]


def test_the_messages_of_a_deleted_port_are_suspended(box: Box, tmp_path: Path) -> None:
    add_sink(box, SparkSink("parquet", "lake"))
    publish(box, b"a")
    port_id = read_port_id(box)
    box.delete_all("send ports")
    assert drain_batch(make_drain(box, tmp_path), box, port_id) == 0
    assert box.suspended() == [("PORT_GONE", True)]


def test_the_lock_number_of_a_sink_is_valid_in_postgresql(box: Box) -> None:
    for port_id in (uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), uuid.uuid4()):
        assert box.one("SELECT pg_try_advisory_xact_lock(7008, %s)", to_lock_number(port_id)) is True
