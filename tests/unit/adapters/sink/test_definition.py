"""Sinks as a user declares them: their columns, their guarantees, and what can be wrong with them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from postroom import BTS, Application, Property, adapters, secret
from postroom.adapters import SinkDefinition, SparkSink, SparkTable
from postroom.adapters.kinds import load_send_adapter
from postroom.adapters.sink.columns import parse_column_names
from postroom.errors import DefinitionError, DefinitionRefused, StateError
from postroom.operations.redaction import redact_adapter
from postroom.properties import DistinguishedField

Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)


@pytest.mark.parametrize(
    ("sink", "guarantee"),
    [
        (SparkSink("parquet", "out/lake"), "exactly once: each batch is a directory that appears whole"),
        (SparkSink("csv", Path("out/lake")), "exactly once: each batch is a directory that appears whole"),
        (SparkSink("json", "s3a://bucket/lake"), "exactly once for readers of the commit log in _postroom"),
        (SparkTable("postgresql://db/x", "orders"), "exactly once: rows are merged by message_id"),
        (
            SparkTable("jdbc:derby:data", "lake.orders", options={"user": "etl"}),
            "exactly once: rows are merged by message_id",
        ),
        (
            SparkSink("jdbc", options={"url": "jdbc:x"}),
            "at least once: the writer 'jdbc' may repeat a batch, rows have their message_id; SparkTable merges by it",
        ),
        (
            SparkSink("kafka"),
            "at least once: the writer 'kafka' may repeat a batch, rows have their message_id",
        ),
    ],
)
def test_each_sink_has_a_guarantee(sink: SinkDefinition, guarantee: str) -> None:
    assert sink.problems() == []
    assert sink.guarantee == guarantee
    assert load_send_adapter(sink.model_dump(mode="json")) == sink


def test_columns_are_named_by_the_user_or_by_their_properties() -> None:
    sink = SparkSink("parquet", "lake", columns={"sum": Total}, partition_by=[Region, "message_type", Total])
    assert [(column.name, column.as_property()) for column in sink.columns] == [("sum", Total), ("Region", Region)]
    assert sink.partition_by == ("Region", "message_type", "sum")
    assert SparkTable("postgresql://db/x", "t", columns=[Total]).columns[0].name == "Total"


def test_text_formats_store_text_by_default() -> None:
    assert [SparkSink(format, "x").body for format in ("csv", "json", "parquet", "orc")] == [
        "text",
        "text",
        "binary",
        "binary",
    ]
    assert SparkSink("parquet", "x", body="none").body == "none"


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        (SparkSink("parquet"), "needs a path"),
        (SparkSink("", "x"), "format is empty"),
        (SparkSink("parquet", ""), "path is empty"),
        (SparkSink("csv", "x", body="binary"), "can store only text"),
        (SparkSink("parquet", "x", partition_by=["colour"]), "'colour', which is not a column"),
        (SparkSink("parquet", "x", columns={"body": Region}), "column 'body' exists twice"),
        (SparkSink("parquet", "x", columns={"a": Region, "A": Total}), "column 'A' exists twice"),
        (SparkSink("parquet", "x", columns={"a b": Region}), "63 letters, digits and underscores"),
        (SparkSink("parquet", "x", columns={"batch": Region}), "column 'batch' exists twice"),
        (SparkSink("parquet", "x", max_messages=0), "max_messages is 0"),
        (SparkSink("parquet", "x", interval=-1), "interval is -1 seconds"),
        (SparkSink("parquet", "x", parse=" "), "parse is empty"),
        (SparkSink("parquet", "x", parse="a BIGNT"), "parse: the column 'a' has the type 'bignt'"),
        (SparkSink("parquet", "x", parse="a BIGNT", partition_by=["b"]), "partition_by names 'b'"),
        (SparkTable("jdbc:postgresql://db/x", "t", parse="a"), "parse: 'a' is not a column"),
        (SparkSink("parquet", "x", parse="a INT, message_id STRING"), "'message_id', which already exists"),
        (SparkSink("parquet", "x", options={"Path": "y"}), "option 'Path' is set by Postroom"),
        (SparkTable("mysql://x", "t"), "must start with postgresql://"),
        (SparkTable("postgresql://x", "a.b.c"), "not the name of a table"),
        (SparkTable("postgresql://x", "t", options={"driver": "x"}), "'driver' is not a setting of libpq"),
        (SparkTable("postgresql://x?host=a=b", "t"), 'url is not valid: extra key/value separator "…"'),
        (SparkTable("jdbc:clickhouse://x", "t"), "jdbc:clickhouse, which does not support merging rows"),
        (SparkTable("jdbc:", "t"), "which does not support merging rows"),
        (SparkTable("jdbc:derby:x", "t", options={"dbTable": "other"}), "option 'dbTable' is set by Postroom"),
        (SparkTable("jdbc:derby:x", "t", columns={"postroom_seq": Region}), "the name is reserved"),
    ],
)
def test_all_problems_of_a_sink_are_reported(sink: SinkDefinition, said: str) -> None:
    assert said in "\n".join(sink.problems())


def test_a_column_that_is_not_a_property_is_rejected_at_once() -> None:
    for wrong in ({"region": "Orders.Region"}, "region", [1]):
        with pytest.raises(DefinitionError, match="cannot be created from these arguments"):
            SparkSink("parquet", "x", columns=wrong)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="partition_by is 'Region'"):
        SparkSink("parquet", "x", partition_by="Region")


@pytest.mark.parametrize(
    ("ddl", "names"),
    [
        ("id BIGINT, total DECIMAL(12,2)", ["id", "total"]),
        ("lines ARRAY<STRUCT<sku: STRING, n: INT>>, at TIMESTAMP", ["lines", "at"]),
        ("`a b` INT NOT NULL, m MAP<STRING,INT>", ["a b", "m"]),
        ("", []),
    ],
)
def test_the_columns_of_a_schema(ddl: str, names: list[str]) -> None:
    assert parse_column_names(ddl) == names


def test_addresses_contain_no_secrets(tmp_path: Path) -> None:
    table = SparkTable("postgresql://etl:secret@db:5432/x?password=more", "lake.orders")
    assert table.address(tmp_path) == "postgresql://db:5432/x#lake.orders"
    assert SparkSink("parquet", "out").address(tmp_path) == (tmp_path / "out").as_uri()
    assert SparkSink("parquet", "s3a://bucket/lake/").address(tmp_path) == "s3a://bucket/lake"
    assert SparkSink("kafka").address(tmp_path) == "spark:kafka"
    assert redact_adapter(table.model_dump(mode="json"))["url"] == "postgresql://(hidden)@db:5432/x?password=(hidden)"
    options = SparkSink(
        "jdbc",
        options={
            "url": "jdbc:x://me:secret@db",
            "Password": "p",
            "dbtable": "t",
            "kafka.sasl.jaas.config": 'x required password="p";',
        },
    )
    assert redact_adapter(options.model_dump(mode="json"))["options"] == {
        "url": "jdbc:x://(hidden)@db",
        "Password": "(hidden)",
        "dbtable": "t",
        "kafka.sasl.jaas.config": "(hidden)",
    }


@pytest.mark.parametrize(
    ("url", "address", "shown"),
    [
        (
            "jdbc:sqlserver://db:1433;user=etl;password=a;encrypt=true",
            "jdbc:sqlserver://db:1433",
            "jdbc:sqlserver://db:1433;user=etl;password=(hidden);encrypt=true",
        ),
        ("jdbc:mysql://db/x?password=a&ssl=1", "jdbc:mysql://db/x", "jdbc:mysql://db/x?password=(hidden)&ssl=1"),
        (
            "jdbc:oracle:thin:scott/tiger@db:1521:x",
            "jdbc:oracle:thin:@db:1521:x",
            "jdbc:oracle:thin:(hidden)@db:1521:x",
        ),
    ],
)
def test_addresses_of_jdbc_contain_no_secrets(url: str, address: str, shown: str, tmp_path: Path) -> None:
    table = SparkTable(url, "orders")
    assert [problem for problem in table.problems() if "contains a password" not in problem] == []
    assert len(table.problems()) == 1
    assert table.address(tmp_path) == f"{address}#orders"
    assert redact_adapter(table.model_dump(mode="json"))["url"] == shown


def test_passwords_are_options_that_refer_to_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    password = secret(env="POSTROOM_TEST_PASSWORD")
    assert SparkTable("postgresql://etl@db/x", "orders", options={"password": password}).problems() == []
    (problem,) = SparkTable("jdbc:mysql://db/x", "orders", options={"user": "etl", "password": "p4ss"}).problems()
    assert "'password' is a secret" in problem
    assert "p4ss" not in problem
    monkeypatch.setenv("POSTROOM_TEST_PASSWORD", "p4ss")
    sink = SparkSink("jdbc", options={"url": "jdbc:mysql://db/x", "dbtable": "t", "password": password})
    assert sink.problems() == []
    assert sink.writer_options["password"] == "p4ss"
    assert "p4ss" not in sink.model_dump_json()


def test_columns_name_known_properties() -> None:
    app = Application("orders")
    app.property(Region)
    columns = {"region": Region, "type": BTS.MessageType, "note": DistinguishedField("/order/note")}
    app.send_port("Lake", adapters.SparkSink("parquet", "lake", columns=columns))
    assert [prop.key for prop in app.definition().properties] == ["Orders#Region"]
    app.send_port("Other", adapters.SparkSink("parquet", "other", columns=[Total]))
    with pytest.raises(DefinitionRefused, match=r"Orders\.Total is not known"):
        app.definition()


def test_hosts_cannot_send_with_a_sink(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="do not serve Spark sinks"):
        adapters.build(SparkSink("parquet", "x"), tmp_path)
