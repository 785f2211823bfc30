"""A batch interrupted between any two steps, and what readers see of it: everything once."""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from psycopg.types.json import Jsonb

from postroom.adapters import AnySink, SparkSink, SparkTable
from postroom.errors import ClaimLost, Unavailable
from postroom.maps import Xslt
from postroom.maps.outbound import map_message
from postroom.maps.port_maps import PortMaps
from postroom.message import Message
from postroom.messagebox.check import check
from postroom.messagebox.connection import connect
from postroom.spark.sinks import task
from postroom.spark.sinks.files import LocalTarget
from postroom.spark.sinks.merge import merge_statement
from postroom.spark.sinks.running_sinks import sink_lock
from postroom.spark.sinks.tables import Table
from postroom.system_properties import BTS
from tests.support.box import Box, Region
from tests.support.sinks import Killed, add_sink, drain_of, lake, port_of, publish, written


def dies_at(step: str) -> Callable[[str], None]:
    def at(now: str) -> None:
        if now == step:
            raise Killed(step)

    return at


def ids_in(box: Box, sink: AnySink, home: Path) -> Counter[str]:
    if isinstance(sink, SparkTable):
        rows = box.connection.execute("SELECT message_id::text FROM public.orders").fetchall()
        return Counter(message_id for (message_id,) in rows)
    return Counter(str(row["message_id"]) for row in lake(home / "lake"))


def sink_of(kind: str, box: Box) -> AnySink:
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
def test_whoever_comes_next_goes_on(box: Box, kind: str, step: str, tmp_path: Path) -> None:
    """The process dies at a step; another one drains the rest."""
    sink = sink_of(kind, box)
    add_sink(box, sink)
    ids = publish(box, b"a", b"b", b"c")
    drain = drain_of(box, tmp_path, dies_at(step))
    if step == "completed":
        drain.queue.complete = _and_die(drain.queue.complete)  # type: ignore[method-assign]
    with pytest.raises(Killed):
        written(drain, box)
    another = drain_of(box, tmp_path)
    counts = []
    while (count := written(another, box)) is not None:
        counts.append(count)
    assert counts == ([1] if step == "completed" else [2, 1])
    there = ids_in(box, sink, tmp_path)
    if kind == "other":
        # At least once: what was written before the process died may be there twice, and can be told by its id.
        assert set(there) == set(ids)
        assert there.total() == (5 if step == "written" else 3)
    else:
        assert there == Counter(ids)
    assert box.count("sink_batches") == 0
    assert check(box.connection) == []


def _and_die(complete: Callable[..., int]) -> Callable[..., int]:
    def completed(*arguments: object) -> int:
        complete(*arguments)
        raise Killed("completed")

    return completed


def test_what_is_published_meanwhile_is_for_the_next_time(box: Box, tmp_path: Path) -> None:
    """`pipeline run --once` comes to its end, although hosts go on publishing as fast as it writes."""
    add_sink(box, SparkSink("parquet", "lake", max_messages=2))
    publish(box, b"a", b"b", b"c")

    def more(step: str) -> None:
        if step == "begin":
            publish(box, b"later", b"later")

    with connect(box.url, user=box.host().role_name) as connection:
        drain = drain_of(box, tmp_path, more)
        assert drain.drain_what_waits(connection, port_of(box), threading.Event()).written == 4
        assert box.queued() == {"Lake": 3}
        assert drain_of(box, tmp_path).drain_what_waits(connection, port_of(box), threading.Event()).written == 3
        assert drain.drain_what_waits(connection, port_of(box), threading.Event()).written == 0


def _dies(*_: object) -> None:
    raise Killed("before it is said that the batch has ended")


def test_directories_appear_whole_and_are_in_the_log(box: Box, tmp_path: Path) -> None:
    add_sink(box, SparkSink("parquet", "lake", partition_by=[Region], max_messages=2))
    publish(box, b"a", region="EU")
    publish(box, b"b", region="US")
    drain = drain_of(box, tmp_path)
    assert written(drain, box) == 2
    [directory] = [one for one in (tmp_path / "lake").iterdir() if one.name.startswith("batch=")]
    assert sorted(one.name for one in directory.iterdir() if one.is_dir()) == ["Region=EU", "Region=US"]
    [entry] = (tmp_path / "lake" / "_postroom" / "log").iterdir()
    assert json.loads(entry.read_text())["directory"] == directory.name
    assert list((tmp_path / "lake" / "_postroom" / "staging").iterdir()) == []
    rows = {row["Region"]: row for row in lake(tmp_path / "lake")}
    assert rows["EU"]["body"] == b"a"
    assert rows["US"]["received_at"] is not None


def test_a_late_attempt_adds_nothing(box: Box, tmp_path: Path) -> None:
    """A process that was taken for dead goes on after another one has written its batch."""
    add_sink(box, SparkSink("parquet", "lake"))
    ids = publish(box, b"a")

    def taken_over(step: str) -> None:
        if step == "written":
            assert written(drain_of(box, tmp_path), box) == 1

    with pytest.raises(ClaimLost):
        written(drain_of(box, tmp_path, taken_over), box)
    assert Counter(str(row["message_id"]) for row in lake(tmp_path / "lake")) == Counter(ids)


def test_a_batch_that_was_given_up_cannot_be_published_by_a_late_attempt(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was taken for dead is about to rename when another one has given the batch up: its messages come
    again in another batch, so this one must not appear."""
    add_sink(box, SparkSink("parquet", "lake"), retry_seconds=0)
    ids = publish(box, b"a")

    def fails(step: str) -> None:
        raise RuntimeError("the job was aborted")

    def given_up(step: str) -> None:
        if step == "written":
            with monkeypatch.context() as patched:
                # As if the late one had written after this.
                patched.setattr(LocalTarget, "discard", lambda *_: None)
                assert written(drain_of(box, tmp_path, fails), box) == 0
            assert lake(tmp_path / "lake") == []

    with pytest.raises(ClaimLost, match="given up"):
        written(drain_of(box, tmp_path, given_up), box)
    assert lake(tmp_path / "lake") == []
    drain = drain_of(box, tmp_path)
    assert drain.queue.waiting(box.connection) == {port_of(box)}
    assert written(drain, box) == 1
    assert Counter(str(row["message_id"]) for row in lake(tmp_path / "lake")) == Counter(ids)


def test_who_dies_after_giving_a_batch_up_leaves_it_to_the_next(box: Box, tmp_path: Path) -> None:
    add_sink(box, SparkSink("parquet", "lake"))
    ids = publish(box, b"a")

    def fails(step: str) -> None:
        raise RuntimeError("the job was aborted")

    drain = drain_of(box, tmp_path, fails)
    drain.queue.fail = _dies  # type: ignore[method-assign, assignment]
    for _ in range(2):
        with pytest.raises(Killed):
            written(drain, box)
        assert lake(tmp_path / "lake") == []
    assert written(drain_of(box, tmp_path), box) == 1
    assert Counter(str(row["message_id"]) for row in lake(tmp_path / "lake")) == Counter(ids)


def test_the_places_of_batches_that_were_given_up_are_free_after_a_day(box: Box, tmp_path: Path) -> None:
    add_sink(box, SparkSink("parquet", "lake"), retry_seconds=0)
    publish(box, b"a")

    def fails(step: str) -> None:
        raise RuntimeError("the job was aborted")

    assert written(drain_of(box, tmp_path, fails), box) == 0
    [place] = (tmp_path / "lake").glob("batch=*")
    [entry] = (tmp_path / "lake" / "_postroom" / "given_up").iterdir()
    drain = drain_of(box, tmp_path)
    assert drain.queue.waiting(box.connection)
    assert written(drain, box) == 1
    assert place.is_dir()
    os.utime(entry, (0, 0))
    publish(box, b"b")
    assert written(drain, box) == 1
    assert not place.exists()
    assert not entry.exists()
    assert len(lake(tmp_path / "lake")) == 2


def test_a_batch_that_is_there_is_not_given_up(box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full when the log is written: the directory is there, so the batch stays what it is."""
    add_sink(box, SparkSink("parquet", "lake"))
    ids = publish(box, b"a")
    with monkeypatch.context() as patched:

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        patched.setattr(LocalTarget, "_log", full)
        with pytest.raises(OSError, match="No space"):
            written(drain_of(box, tmp_path), box)
    assert box.count("sink_batches") == 1
    assert written(drain_of(box, tmp_path), box) == 1
    assert Counter(str(row["message_id"]) for row in lake(tmp_path / "lake")) == Counter(ids)


def test_what_cannot_be_a_row_is_suspended_alone(box: Box, tmp_path: Path) -> None:
    add_sink(box, SparkSink("parquet", "lake", body="text"))
    good, bad = publish(box, b"good", b"\xff\xfe")
    assert written(drain_of(box, tmp_path), box) == 1
    assert [row["message_id"] for row in lake(tmp_path / "lake")] == [good]
    row = box.connection.execute("SELECT message_id::text, error_code, adapter FROM suspended_queue").fetchone()
    assert row == (bad, "DELIVERY_REFUSED", "spark_sink")


def test_a_map_that_stumbles_over_one_message_suspends_it_alone(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is raised while a row is made: the others of the batch are written."""

    def mapped(maps: PortMaps, message: Message) -> Message:
        if message.body is not None and b"".join(message.body.body.chunks()) == b"bad":
            raise KeyError("lines")
        return map_message(maps, message)

    monkeypatch.setattr(task, "map_message", mapped)
    add_sink(box, SparkSink("parquet", "lake"))
    first, bad, last = publish(box, b"a", b"bad", b"b")
    assert written(drain_of(box, tmp_path), box) == 2
    assert [row["message_id"] for row in lake(tmp_path / "lake")] == [first, last]
    row = box.connection.execute("SELECT message_id::text, error_description FROM suspended_queue").fetchone()
    assert row is not None
    assert row[0] == bad
    assert "KeyError: 'lines'" in row[1]


def test_what_cannot_be_a_row_is_routed_where_the_port_says_so(box: Box, tmp_path: Path) -> None:
    add_sink(box, SparkSink("parquet", "lake", body="text"), route_failures=True)
    box.add_port("Errors", "ErrorReport.ErrorType == 'FailedMessage'")
    publish(box, b"\xff\xfe")
    assert written(drain_of(box, tmp_path), box) == 0
    assert box.queued() == {"Errors": 1}
    assert box.suspended() == []


def test_rows_are_made_of_what_the_maps_of_the_port_make(box: Box, tmp_path: Path) -> None:
    """What they cannot map is suspended alone (SND-01, SND-03)."""
    (tmp_path / "map.xslt").write_text(
        '<invoice xsl:version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">'
        '<xsl:value-of select="/order"/></invoice>'
    )
    maps = PortMaps.pack([Xslt("map.xslt", source="order", target="invoice")], tmp_path)
    add_sink(box, SparkSink("parquet", "lake", body="text", columns=[BTS.MessageType]))
    box.connection.execute("UPDATE send_ports SET maps = %s", (Jsonb(maps.model_dump(mode="json")),))
    promoted = {Region: "EU", BTS.MessageType: "order"}
    box.agent().publish([Message.of(body, promoted=promoted) for body in (b"<order>5</order>", b"no XML")])
    assert written(drain_of(box, tmp_path), box) == 1
    [row] = lake(tmp_path / "lake")
    assert (row["body"], row["MessageType"]) == ('<?xml version="1.0"?>\n<invoice>5</invoice>\n', "invoice")
    assert box.suspended() == [("MAP", True)]


def test_a_large_body_is_read_from_its_fragments(box: Box, tmp_path: Path) -> None:
    add_sink(box, SparkSink("parquet", "lake"))
    publish(box, b"x" * 250_000)
    assert written(drain_of(box, tmp_path), box) == 1
    assert [row["body"] for row in lake(tmp_path / "lake")] == [b"x" * 250_000]


def test_a_sink_that_is_away_is_tried_again_by_the_ports_policy(box: Box, tmp_path: Path) -> None:
    add_sink(
        box,
        SparkTable(f"postgresql:///nowhere?host={tmp_path}", "orders"),
        retry_count=1,
        retry_seconds=0,
    )
    publish(box, b"a")
    drain = drain_of(box, tmp_path)
    assert written(drain, box) == 0
    assert (box.count("scheduled_queue"), box.count("sink_batches")) == (1, 0)
    assert drain.queue.waiting(box.connection) == {port_of(box)}
    assert written(drain, box) == 0
    assert box.suspended() == [(Unavailable.code, True)]
    assert check(box.connection) == []


def test_what_a_failed_attempt_has_written_is_removed(box: Box, tmp_path: Path) -> None:
    add_sink(box, SparkSink("parquet", "lake"), retry_seconds=0)
    publish(box, b"a")

    def fails(step: str) -> None:
        if step == "written":
            raise RuntimeError("the job was aborted")

    assert written(drain_of(box, tmp_path, fails), box) == 0
    assert list((tmp_path / "lake" / "_postroom" / "staging").iterdir()) == []
    assert box.one("SELECT error_description FROM scheduled_queue").splitlines() == [
        "The batch could not be written.",
        "the job was aborted",
        "It is tried again by the port's policy. The log of the pipeline has the whole account.",
    ]
    drain = drain_of(box, tmp_path)
    assert drain.queue.waiting(box.connection) == {port_of(box)}
    assert written(drain, box) == 1


def test_what_is_not_tried_again_does_not_say_that_it_is(box: Box, tmp_path: Path) -> None:
    """The account that Spark gives of a failed job is cut down to what failed."""
    add_sink(box, SparkSink("parquet", "lake"), retry_count=0)
    publish(box, b"a")

    def fails(step: str) -> None:
        raise RuntimeError(
            "An error occurred while calling o396.save.\n: org.apache.spark.SparkClassNotFoundException: "
            "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: nosuch. SQLSTATE: 42K02\n\tat org.apache.spark.X\n"
        )

    assert written(drain_of(box, tmp_path, fails), box) == 0
    assert box.one("SELECT error_description FROM suspended_queue").splitlines() == [
        "The batch could not be written.",
        "Failed to find the data source: nosuch.",
        "Mend the sink and resume the instance. The log of the pipeline has the whole account.",
    ]


def test_a_sink_that_goes_away_in_the_middle(box: Box, tmp_path: Path) -> None:
    """The target's connection ends between the merge and its commit: the rows come again, and are there once."""
    box.connection.execute("CREATE SCHEMA IF NOT EXISTS public")
    box.connection.execute(
        "CREATE TABLE public.orders (message_id text UNIQUE, interchange_id text, message_type text,"
        " received_at timestamptz, body bytea)"
    )
    box.connection.execute("CREATE SEQUENCE public.times")
    box.connection.execute(
        "CREATE FUNCTION public.away() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF nextval('public.times') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;"
        " RETURN NULL; END $$"
    )
    box.connection.execute(
        "CREATE CONSTRAINT TRIGGER away AFTER INSERT ON public.orders DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION public.away()"
    )
    sink = SparkTable(box.url, "public.orders")
    add_sink(box, sink, retry_seconds=0)
    ids = publish(box, b"a", b"b")
    drain = drain_of(box, tmp_path)
    assert written(drain, box) == 0
    assert ids_in(box, sink, tmp_path) == Counter()
    assert drain.queue.waiting(box.connection) == {port_of(box)}
    assert written(drain, box) == 2
    assert ids_in(box, sink, tmp_path) == Counter(ids)


def test_a_row_that_the_table_refuses_is_suspended_alone(box: Box, tmp_path: Path) -> None:
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
    assert written(drain_of(box, tmp_path), box) == 8
    assert ids_in(box, sink, tmp_path) == Counter(ids) - Counter(bad)
    rows = box.connection.execute("SELECT message_id::text FROM suspended_queue ORDER BY seq").fetchall()
    assert [message_id for (message_id,) in rows] == bad


def test_numbers_and_dates_inside_of_structures_are_json(box: Box) -> None:
    lines = pa.list_(pa.struct([("price", pa.decimal128(10, 2)), ("on", pa.date32())]))
    table = Table(url=box.url, name="public.orders")
    box.connection.execute("CREATE SCHEMA IF NOT EXISTS public")
    table.prepare(pa.schema([("message_id", pa.string()), ("lines", lines)]))
    row = {"message_id": str(uuid.uuid4()), "lines": [{"price": Decimal("1.50"), "on": date(2026, 1, 31)}]}
    with table.connected() as target:
        assert table.merge(target, ["message_id", "lines"], [row]) == 1
    assert box.one("SELECT lines::text FROM public.orders") == '[{"on": "2026-01-31", "price": 1.50}]'


def test_the_statement_that_merges_is_one_of_postgresql_too(box: Box) -> None:
    """JDBC's tables are tried with Derby; this is the same statement in another database."""
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


def test_a_table_without_its_index_is_refused(box: Box, tmp_path: Path) -> None:
    box.connection.execute("CREATE SCHEMA IF NOT EXISTS public")
    box.connection.execute("CREATE TABLE public.orders (message_id text)")
    add_sink(box, SparkTable(box.url, "public.orders"))
    publish(box, b"a")
    assert written(drain_of(box, tmp_path), box) == 0
    assert "no unique index" in box.one("SELECT error_description FROM suspended_queue")


def test_a_batch_goes_where_it_was_to_go_when_it_was_made(box: Box, tmp_path: Path) -> None:
    """A sink that is moved between two attempts would otherwise write one batch to both places."""
    add_sink(box, SparkSink("parquet", "lake"))
    ids = publish(box, b"a")
    with pytest.raises(Killed):
        written(drain_of(box, tmp_path, dies_at("published")), box)
    box.connection.execute('UPDATE send_ports SET adapter = adapter || \'{"path": "elsewhere"}\'')
    publish(box, b"b")
    drain = drain_of(box, tmp_path)
    assert [written(drain, box) for _ in range(3)] == [1, 1, None]
    assert [row["message_id"] for row in lake(tmp_path / "lake")] == ids
    assert [row["body"] for row in lake(tmp_path / "elsewhere")] == [b"b"]


def test_the_messages_of_a_port_that_is_gone_are_kept(box: Box, tmp_path: Path) -> None:
    add_sink(box, SparkSink("parquet", "lake"))
    publish(box, b"a")
    port_id = port_of(box)
    box.connection.execute("DELETE FROM send_ports")
    assert written(drain_of(box, tmp_path), box, port_id) == 0
    assert box.suspended() == [("PORT_GONE", True)]


def test_the_lock_of_a_sink_is_a_number_that_postgresql_takes(box: Box) -> None:
    for port_id in (uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), uuid.uuid4()):
        assert box.one("SELECT pg_try_advisory_xact_lock(7008, %s)", sink_lock(port_id)) is True
