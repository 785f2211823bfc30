"""A Spark reader says what is wrong with it before Spark is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from postroom import adapters
from postroom.adapters import kinds
from postroom.adapters.spark_schema import parse_columns
from postroom.errors import DefinitionError
from postroom.values import ValueType

SCHEMA = "id bigint, region string"


def reader(format: str = "csv", path: str | None = "in", **settings: Any) -> adapters.SparkReader:
    return adapters.SparkReader(format, path, **{"schema": SCHEMA, **settings})


def test_columns() -> None:
    schema = """id BIGINT NOT NULL COMMENT 'the number, really', `odd ``name``` decimal(12, 2), tags array<string>,
                of struct<a: int, b: string>, at timestamp, share double, code varchar(10), flag boolean"""
    columns = parse_columns(schema)
    assert [column.name for column in columns] == ["id", "odd `name`", "tags", "of", "at", "share", "code", "flag"]
    holds = [ValueType.INT, ValueType.DECIMAL, None, None, ValueType.DATETIME, ValueType.FLOAT, ValueType.STR]
    assert [column.value_type for column in columns] == [*holds, ValueType.BOOL]
    assert [column.name for column in columns if column.is_nested] == ["tags", "of"]
    assert columns[0].can_promote(ValueType.DECIMAL)
    assert not columns[1].can_promote(ValueType.INT)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("id", "'id' is not a column"),
        ("id bigint,", "'' is not a column"),
        ("id number", "the type 'number'"),
        ("a decimal(39,2)", "the type 'decimal(39,2)'"),
        ("a int, A string", "two columns named 'a'"),
    ],
)
def test_an_invalid_schema_is_rejected(schema: str, why: str) -> None:
    [problem] = reader(schema=schema).problems()
    assert why in problem


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"path": None}, "path is missing"),
        ({"schema": None}, "schema is missing"),
        ({"format": "text"}, "schema cannot be set"),
        ({"format": "xml"}, "'rowTag' is missing"),
        ({"options": {"mode": "DROPMALFORMED"}}, "needs PERMISSIVE"),
        ({"options": {"ignoreCorruptFiles": True}}, "would be lost"),
        ({"options": {"PATH": "x"}}, "it is the second argument"),
        ({"schema": "_metadata string"}, "reserved by Spark"),
        ({"pattern": ""}, "pattern is empty"),
        ({"bad_rows": -1}, "bad_rows is -1"),
        ({"bad_share": 1.5}, "bad_share is 1.5"),
    ],
)
def test_problems(settings: dict[str, Any], why: str) -> None:
    [problem] = reader(**settings).problems()
    assert why in problem


def test_a_format_that_is_not_a_file_format_is_a_stream() -> None:
    kafka = adapters.SparkReader("kafka", options={"subscribe": "orders", "path": "of a lake"})
    assert kafka.problems() == []
    assert (kafka.reads_files, kafka.body_column, kafka.address(Path("home"))) == (False, "value", "spark:kafka")
    assert kafka.watched_folder is None
    assert kafka.known_columns is not None
    assert [column.name for column in kafka.known_columns][:3] == ["key", "value", "topic"]
    assert adapters.SparkReader("of-my-own").known_columns is None
    [problem] = adapters.SparkReader("kafka", "in").problems()
    assert "is read as a stream" in problem
    [problem] = adapters.SparkReader("kafka", options={"checkpointLocation": "x"}).problems()
    assert "it is stored in the home folder" in problem


def test_an_option_is_a_text_a_number_or_a_truth() -> None:
    with pytest.raises(DefinitionError, match=r"options\.header"):
        reader(options={"header": ["yes"]})


def test_a_stored_reader_is_loaded_again(tmp_path: Path) -> None:
    made = reader("CSV", options={"header": True, "maxColumns": 30, "sep": ";"}, bad_share=0.1, archive="done")
    assert made.problems() == []
    assert kinds.load_receive_adapter(made.model_dump(mode="json")) == made
    assert adapters.SparkReader(**made.model_dump(mode="json")) == made
    assert made.format == "csv"
    assert made.options["header"] is True
    assert made.address(tmp_path) == (tmp_path / "in").as_uri()
    assert made.watched_folder == adapters.File("in", archive="done")


def test_a_reader_cannot_send() -> None:
    with pytest.raises(DefinitionError, match="cannot send"):
        kinds.load_send_adapter(reader().model_dump(mode="json"))
