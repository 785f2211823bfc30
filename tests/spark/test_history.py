"""The MessageBox as tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import postroom.spark
from postroom.errors import BadFilter, DefinitionError, NotAllowed, NotFound, Unavailable
from postroom.message import Message
from postroom.messagebox.connection import Login
from postroom.messagebox.embedded import EmbeddedServer, server_folder
from postroom.messagebox.migrate import get_group_role
from postroom.spark.history.data_source import History, HistoryReader, Range, select_login
from postroom.spark.history.history_tables import TABLES, parse_where
from tests.conftest import NOT_DURABLE
from tests.support.box import Box, Priority, Region
from tests.support.pages import ROOT, blocks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def reader_of(
    box: Box,
    table: str,
    columns: list[str] | None = None,
    *,
    where: str | None = None,
    partitions: int = 8,
    max_body: int = 1000,
    user: str | None = None,
) -> HistoryReader:
    return HistoryReader(
        login=Login(url=box.url, user=user),
        table=TABLES[table],
        columns=columns or [column.split()[0] for column in TABLES[table].schema().split(", ")],
        where=None if where is None else parse_where(where, TABLES[table]),
        partitions=partitions,
        max_body=max_body,
    )


def rows_of(reader: HistoryReader) -> list[dict[str, object]]:
    return [row for partition in reader.partitions() for batch in reader.read(partition) for row in batch.to_pylist()]


@pytest.fixture
def filled(box: Box) -> Box:
    """Publish two orders, one of them large, for a stopped port."""
    box.add_port("Europe", "Orders.Region == 'EU'", state="stopped")
    agent = box.agent()
    agent.publish([Message.of(b'{"n": 1}', promoted={Region: "EU", Priority: 7}, content_type="application/json")])
    agent.publish([Message.of(b"x" * 300_000, promoted={Region: "EU"})])
    return box


def test_bodies_are_read_only_if_they_are_selected(filled: Box) -> None:
    messages = rows_of(reader_of(filled, "messages"))
    assert sorted(str(row["size"]) for row in messages) == ["300000", "8"]
    assert all("body" not in row for row in messages)
    bodies = rows_of(reader_of(filled, "messages", ["size", "body"], max_body=1000))
    assert {row["size"]: row["body"] for row in bodies} == {8: b'{"n": 1}', 300_000: None}
    whole = rows_of(reader_of(filled, "messages", ["body"], max_body=300_000))
    assert b"x" * 300_000 in [row["body"] for row in whole]


def test_contexts_have_a_row_per_property_and_redact_sensitive_values(filled: Box) -> None:
    filled.set_sensitive(Region.key)
    rows = rows_of(reader_of(filled, "contexts", where="kind == 'promoted'"))
    found = {(row["property"], row["value_type"], row["value"]) for row in rows}
    assert found >= {(Region.dotted_name, "str", "(hidden)"), (Priority.dotted_name, "int", "7")}
    everybody = rows_of(reader_of(filled, "contexts", where="property == 'BTS.OriginatorPID'"))
    assert [row["value"] for row in everybody] == ["Guest", "Guest"]


def test_queues_have_names_and_states(filled: Box) -> None:
    rows = rows_of(reader_of(filled, "queues"))
    assert {(row["service"], row["state"], row["error_code"], row["task"]) for row in rows} == {
        ("Europe", "suspended", "PORT_STOPPED", "deliver")
    }
    assert len({row["seq"] for row in rows}) == 2


def test_queues_have_the_task_of_messages_for_an_ordered_port(box: Box) -> None:
    box.add_port("Ordered", "Orders.Region == 'EU'", ordered=True)
    box.agent().publish([Message.of(b"1", promoted={Region: "EU"})])
    assert [row["task"] for row in rows_of(reader_of(box, "queues"))] == ["deliver_in_order"]


def test_queues_name_a_removed_port_and_the_task_of_rerouted_messages(filled: Box) -> None:
    connection = filled.connection
    filled.add_removed_port(filled.remove_port(), "Europe")
    filled.remove_subscriptions()
    connection.execute("SELECT purge_subscriptions('0 s')")
    connection.execute("SELECT reroute_instances(%s)", ([row.instance_id for row in filled.suspended_rows()],))
    rows = rows_of(reader_of(filled, "queues"))
    assert {(row["service"], row["state"], row["task"]) for row in rows} == {("Europe", "ready to run", "reroute")}


def test_ranges_contain_every_row_once(filled: Box) -> None:
    filled.add_messages(6_000, size=900)
    reader = reader_of(filled, "messages", ["message_id"], partitions=4)
    ranges = reader.partitions()
    assert len(ranges) == 4
    ids = [row["message_id"] for row in rows_of(reader)]
    assert len(ids) == len(set(ids)) == 6002
    shares = [sum(batch.num_rows for batch in reader.read(range_)) for range_ in ranges]
    assert min(shares) > 1000
    assert all(batch.num_rows <= 1000 for range_ in ranges for batch in reader.read(range_))
    second = ranges[1]
    assert isinstance(second, Range)
    query, given = reader._query(second)
    plan = filled.connection.execute(f"EXPLAIN {query}".encode(), given).fetchall()
    assert "Tid Range Scan on spool" in str(plan), "a range reads its own pages, and those alone"


def test_queues_are_read_in_ranges_of_numbers(filled: Box) -> None:
    reader = reader_of(filled, "queues", ["seq"])
    numbers = sorted(row["seq"] for row in rows_of(reader))  # type: ignore[type-var]
    parts = [Range(None, str(numbers[1])), Range(str(numbers[1]), None)]
    assert [[row["seq"] for batch in reader.read(one) for row in batch.to_pylist()] for one in parts] == [
        [numbers[0]],
        [numbers[1]],
    ]


def test_a_missing_permission_is_reported(filled: Box) -> None:
    operators = get_group_role(filled.connection, "operators")
    filled.connection.execute(f"CREATE ROLE {operators}_olga LOGIN IN ROLE {operators}")
    try:
        with pytest.raises(NotAllowed, match="may not read the messages"):
            reader_of(filled, "messages", user=f"{operators}_olga").partitions()
        assert len(rows_of(reader_of(filled, "queues", user=f"{operators}_olga"))) == 2
    finally:
        filled.connection.execute(f"DROP ROLE {operators}_olga")


def test_a_missing_table_option_or_messagebox_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no table 'orders'"):
        History({"path": "orders"}).schema()
    with pytest.raises(NotFound, match="The table is missing"):
        History({}).schema()
    with pytest.raises(DefinitionError, match="no option 'colour'"):
        History({"path": "messages", "colour": "red"}).schema()
    with pytest.raises(NotFound, match="no MessageBox in"):
        select_login({"home": str(tmp_path)}, {})
    (tmp_path / ".postroom" / "postgres").mkdir(parents=True)
    with pytest.raises(Unavailable, match="is not running"):
        select_login({"home": str(tmp_path)}, {"url": "postgresql:///box"})
    assert select_login({"user": "olga"}, {"url": "postgresql:///box"}) == Login(url="postgresql:///box", user="olga")


def test_where_selects_rows_by_columns_of_every_kind(filled: Box) -> None:
    [small] = rows_of(reader_of(filled, "messages", where="size < 1000"))
    one = f"message_id == '{str(small['message_id']).upper()}' and exists(content_type) and parts == 1"
    assert rows_of(reader_of(filled, "messages", where=one)) == [small]
    assert rows_of(reader_of(filled, "messages", where="parts & 2 or published_at < '2020-01-01T00:00:00Z'")) == []
    assert len(rows_of(reader_of(filled, "queues", where="attempt >= 0 and seq > 0 and state == 'suspended'"))) == 2
    # A port may have any name.
    assert rows_of(reader_of(filled, "queues", where="service == 'x\\' OR true --'")) == []


def test_where_and_ranges_apply_together(filled: Box) -> None:
    reader = reader_of(filled, "queues", ["seq"], where="service == 'Europe' or service == 'Nobody'")
    first, second = sorted(int(str(row["seq"])) for row in rows_of(reader))
    read = [row for batch in reader.read(Range(str(second), None)) for row in batch.to_pylist()]
    assert read == [{"seq": second}] != [{"seq": first}]


@pytest.fixture
def registered(session: SparkSession) -> Iterator[SparkSession]:
    """Return the session with the format registered and push-down enabled, as for other data sources."""
    setting = "spark.sql.python.filterPushdown.enabled"
    session.conf.set(setting, "true")
    postroom.spark.register(session)
    yield session
    session.conf.unset(setting)


@pytest.fixture
def table(registered: SparkSession, filled: Box) -> DataFrame:
    return registered.read.format("postroom").option("url", filled.url).load("messages")


def test_a_notebook_reads_joins_and_filters(registered: SparkSession, filled: Box, table: DataFrame) -> None:
    soon = datetime.now(UTC) + timedelta(days=1)
    small = table.where(table.size < 1000).where(table.published_at < soon).select("message_id", "size")
    assert [row["size"] for row in small.collect()] == [8]
    contexts = registered.read.format("postroom").option("url", filled.url).load("contexts")
    regions = contexts.where("property = 'Orders.Region'").join(small, "message_id")
    assert [row["value"] for row in regions.collect()] == ["EU"]


def test_register_does_not_change_the_settings_of_the_session(session: SparkSession) -> None:
    before = session.conf.get("spark.sql.python.filterPushdown.enabled")
    postroom.spark.register(session)
    assert session.conf.get("spark.sql.python.filterPushdown.enabled") == before == "false"


def test_a_filter_on_a_dataframe_does_not_change_the_dataframe(table: DataFrame) -> None:
    assert table.count() == 2
    small, large = table.where("size < 1000"), table.where("size >= 1000")
    assert [row["size"] for row in small.collect()] == [8]
    assert [row["size"] for row in large.collect()] == [300_000]
    assert [row["size"] for row in small.collect()] == [8]
    assert table.count() == 2


def test_two_filters_of_one_dataframe_can_be_united_and_joined(table: DataFrame) -> None:
    small, large = table.where("size < 1000"), table.where("size >= 1000")
    assert sorted(row["size"] for row in small.union(large).collect()) == [8, 300_000]
    assert small.crossJoin(large).count() == 1
    left, right = table.where("size < 1000").alias("left"), table.alias("right")
    joined = left.join(right, "parts").selectExpr("left.size AS one", "right.size AS other")
    assert sorted((row["one"], row["other"]) for row in joined.collect()) == [(8, 8), (8, 300_000)]
    assert table.join(table.where("size < 1000").select("message_id"), "message_id").count() == 1


def test_a_cached_filter_does_not_change_the_dataframe(table: DataFrame) -> None:
    small = table.where("size < 1000").cache()
    try:
        assert (small.count(), table.count(), table.where("size >= 1000").count(), small.count()) == (1, 2, 1, 1)
    finally:
        small.unpersist()


def test_a_temporary_view_can_be_filtered_again_and_again(registered: SparkSession, table: DataFrame) -> None:
    table.createOrReplaceTempView("stored")
    try:
        counts = [
            registered.sql(f"SELECT count(*) AS n FROM stored {where}").collect()[0]["n"]
            for where in ("WHERE size < 1000", "", "WHERE size >= 1000", "WHERE size IS NULL", "")
        ]
        assert counts == [1, 2, 1, 0, 2]
        both = "SELECT size FROM stored WHERE size < 1000 UNION ALL SELECT size FROM stored WHERE size >= 1000"
        assert sorted(row["size"] for row in registered.sql(both).collect()) == [8, 300_000]
    finally:
        registered.catalog.dropTempView("stored")


def test_a_view_in_sql_accepts_where_as_an_option(registered: SparkSession, filled: Box) -> None:
    registered.sql(
        "CREATE TEMPORARY VIEW waiting USING postroom"
        f" OPTIONS (table 'queues', url '{filled.url}', where \"service == 'Europe' and attempt >= 0\")"
    )
    try:
        counts = [
            registered.sql(f"SELECT count(*) AS n FROM waiting {where}").collect()[0]["n"]
            for where in ("", "WHERE state = 'active'", "")
        ]
        assert counts == [2, 0, 2]
    finally:
        registered.catalog.dropTempView("waiting")


def test_each_dataframe_has_its_own_where(registered: SparkSession, filled: Box) -> None:
    reader = registered.read.format("postroom").option("url", filled.url)
    small = reader.option("where", "size < 1000").load("messages")
    large = reader.option("where", "size >= 1000").load("messages")
    assert [row["size"] for row in small.collect()] == [8]
    assert [row["size"] for row in large.where("size > 0").collect()] == [300_000]
    assert sorted(row["size"] for row in small.union(large).collect()) == [8, 300_000]


def test_a_where_that_cannot_be_read_is_an_error_of_load(registered: SparkSession, filled: Box) -> None:
    with pytest.raises(BadFilter, match="no column colour"):
        History({"path": "queues", "where": "colour == 'red'"}).schema()
    reader = registered.read.format("postroom").option("url", filled.url).option("where", "size < ")
    with pytest.raises(Exception, match="The filter ends where a value is expected"):
        reader.load("messages")


def test_columns_can_be_selected_by_a_schema(session: SparkSession, filled: Box) -> None:
    postroom.spark.register(session)
    reader = session.read.format("postroom").option("url", filled.url).schema("message_id string, body binary")
    assert {len(row["body"]) for row in reader.load("messages").collect()} == {8, 300_000}


def test_the_embedded_messagebox_of_a_folder_is_found_while_it_runs(home: Path) -> None:
    with EmbeddedServer(server_folder(home), settings=NOT_DURABLE) as server:
        assert select_login({}, {"home": str(home)}) == Login(url=server.url())


def test_the_examples_of_the_notebook_page_run(
    session: SparkSession, filled: Box, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POSTROOM_DATABASE", filled.url)
    names: dict[str, object] = {"__name__": "example", "spark": session}
    for block in blocks(ROOT / "docs" / "how-to" / "history.md", "python"):
        exec(compile(block.text, str(block), "exec"), names)
    assert "PORT_STOPPED" in capsys.readouterr().out
