"""A bad row that was corrected is read without Spark, as a line of its file or as the message (RCV-15)."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from postroom import Property, adapters, pipelines
from postroom.application.define import complete_rows
from postroom.errors import PipelineFailure
from postroom.message import Bytes
from postroom.pipelines import load_pipeline
from postroom.pipelines.rows.document import LINE_HINT, write_json_value
from postroom.pipelines.rows.row_text import BadCell, explain_bad_row, find_xml_row, parse_cell, split_line
from postroom.pipelines.rows.source import RowSource

Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)
At = Property("Orders.At", datetime)
Secret = Property("Orders.Secret", int, sensitive=True)
SCHEMA = "id bigint, region string, total decimal(12,2), at timestamp"


def make(rows: pipelines.Rows, *, format: str = "csv", schema: str = SCHEMA, **options: Any) -> pipelines.Rows:
    """Return the pipeline as the MessageBox stores it."""
    if format == "xml":
        options["rowTag"] = "order"
    complete = complete_rows(rows, adapters.SparkReader(format, "in", schema=schema, options=options))
    loaded = load_pipeline(complete.model_dump(mode="json"))
    assert isinstance(loaded, pipelines.Rows)
    return loaded


def read(pipeline: pipelines.Rows, content: bytes) -> dict[str, Any]:
    [batch] = pipeline.disassemble(Bytes(content))
    [message] = batch.messages.to_pylist()
    return {name: value for name, value in message.items() if name not in ("number", "offset", "length")}


PROMOTE = {Region: "region", Total: "total", At: "at"}
LINE = b"17;EU;12.5;2026-01-31T12:00:00"
JSON = b'{"id":17,"region":"EU","total":12.50,"at":"2026-01-31T12:00:00.000000Z"}'
VALUES = {
    Region.key: "EU",
    Total.key: Decimal("12.5"),
    At.key: datetime(2026, 1, 31, 12, tzinfo=UTC),
    "message_type": "order",
}


@pytest.mark.parametrize(
    ("settings", "content", "body"),
    [
        ({}, LINE, JSON),
        ({}, LINE + b"\r\n", JSON),
        ({}, b"\xef\xbb\xbf" + LINE, JSON),
        # The message that the row should have become is published as it is.
        ({}, b' {"region": "EU", "total": 12.5, "at": "2026-01-31T12:00:00Z"}', None),
        ({"body": "csv"}, LINE, b"17,EU,12.50,2026-01-31T12:00:00.000000Z"),
        ({"body": "csv"}, b"17,EU,12.5,2026-01-31T12:00:00Z", None),
        # The promoted values are not in the message, but in the line.
        ({"column": "region"}, LINE, b"EU"),
    ],
)
def test_a_corrected_row_is_a_line_or_a_message(settings: dict[str, Any], content: bytes, body: bytes | None) -> None:
    pipeline = make(pipelines.Rows(promote=PROMOTE, message_type="order", **settings), sep=";")
    assert read(pipeline, content) == {"body": content if body is None else body, **VALUES}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"17;EU", "It has 2 values, but the schema has 4 columns (id, region, total, at)."),
        (b"x;EU;12.5;", "The column 'id' is bigint, but has 'x'."),
        (b"1;EU;12345678901;", "The column 'total' is decimal(12,2), but has '12345678901'."),
        (b"1;EU;1,5;", "The column 'total' is decimal(12,2), but has '1,5'."),
        (b"1;EU;1;noon", "The column 'at' is timestamp, but has 'noon'."),
        (b"1;\xff;1;", "It is not utf-8."),
        (b"1;EU;1;\n2;EU;2;", "It has more than one line."),
        (b'1;"E"U;1;', 'A " inside a quoted value is written as \\".'),
        (b'{"id": "x"}', "The column 'id' is bigint, but has '\"x\"'."),
        (b'{"total": true}', "The column 'total' is decimal(12,2), but has 'true'."),
        (b"9" * 5_000 + b";EU;1;", f"The column 'id' is bigint, but has '{'9' * 100}'."),
        (b"1;EU;1e9999999999999999999;", "The column 'total' is decimal(12,2), but has '1e9999999999999999999'."),
    ],
)
def test_a_row_that_still_does_not_fit_fails_with_the_reason(line: bytes, why: str) -> None:
    with pytest.raises(PipelineFailure) as failed:
        read(make(pipelines.Rows(promote=PROMOTE), sep=";"), line)
    assert (failed.value.what, failed.value.why) == ("The corrected row does not fit the schema.", why)
    assert failed.value.hint == LINE_HINT


def test_a_row_of_a_json_file_must_fit_the_schema_when_it_is_resumed() -> None:
    pipeline = make(pipelines.Rows(promote={Region: "region"}), format="json")
    assert read(pipeline, b'{"id": 1, "region": "EU", "more": []}')[Region.key] == "EU"
    with pytest.raises(PipelineFailure, match="does not fit the schema"):
        read(pipeline, b'{"id": "1", "region": "EU"}')


def test_a_number_beyond_a_double_does_not_fit_a_row_of_a_json_file() -> None:
    pipeline = make(pipelines.Rows(), format="json", schema="id double")
    with pytest.raises(PipelineFailure, match="does not fit the schema"):
        read(pipeline, b'{"id": 1%s}' % (b"0" * 400))


def test_a_property_value_that_is_not_allowed_fails_the_corrected_line() -> None:
    with pytest.raises(PipelineFailure, match=r"Orders\.Region cannot be promoted from 'region'"):
        read(make(pipelines.Rows(promote=PROMOTE)), b"1,%s,1," % (b"x" * 300))


@pytest.mark.parametrize("content", [b"s3cret,EU,1,", b'{"id": "s3cret"}'])
def test_the_value_of_a_sensitive_column_is_not_shown(content: bytes) -> None:
    pipeline = make(pipelines.Rows(promote={Secret: "id"}))
    with pytest.raises(PipelineFailure) as failed:
        read(pipeline, content)
    assert "s3cret" not in str(failed.value)
    assert pipeline.source is not None
    assert "s3cret" not in explain_bad_row(pipeline.source, "s3cret,EU,1,", ["id"], pipeline.hidden_columns)


def test_a_row_with_many_bad_values_names_the_first_columns_and_counts_the_others() -> None:
    rows = RowSource.create("csv", [(name, "int") for name in "abcde"], {})
    assert rows is not None
    assert explain_bad_row(rows, "u,v,w,x,y", (), ()) == (
        "The column 'a' is int, but has 'u'. The column 'b' is int, but has 'v'. The column 'c' is int, but has 'w'."
        " The same applies to 2 other columns."
    )


def test_only_the_wrong_values_of_a_json_row_are_named_if_spark_read_none_of_them() -> None:
    rows = RowSource.create("json", [("id", "bigint"), ("total", "decimal(12,2)"), ("rate", "double")], {})
    assert rows is not None
    row = '{"id": "x", "total": 12.5, "rate": 1e3}'
    assert explain_bad_row(rows, row, ("id", "total", "rate"), ()) == "The column 'id' is bigint, but has '\"x\"'."


def source(**options: str) -> RowSource:
    found = RowSource.create("csv", [("a", "string"), ("b", "string")], options)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("options", "line", "cells"),
    [
        ({}, "x,y", ["x", "y"]),
        ({}, ',""', [None, None]),
        ({"nullValue": "NULL"}, 'NULL,""', [None, ""]),
        ({}, r'"a \"q\" b", c ', ['a "q" b', " c "]),
        ({"escape": '"'}, '"a ""q"" b",c', ['a "q" b', "c"]),
        ({"sep": "||"}, 'x|y||"||"', ["x|y", "||"]),
        ({"quote": ""}, '"x",y', ['"x"', "y"]),
        ({"quote": "'"}, "'x,',y", ["x,", "y"]),
        ({"ignoreLeadingWhiteSpace": "true", "ignoreTrailingWhiteSpace": "true"}, " x , y ", ["x", "y"]),
        ({}, '"a\nb",c', ["a\nb", "c"]),
    ],
)
def test_a_line_is_split_as_spark_does(options: dict[str, str], line: str, cells: list[str | None]) -> None:
    assert split_line(source(**options), line) == cells


def test_an_unclosed_quote_is_reported() -> None:
    with pytest.raises(ValueError, match='the closing " is missing'):
        split_line(source(), 'x,"y')


@pytest.mark.parametrize(
    ("column_type", "text", "written"),
    [
        ("tinyint", "-128", "-128"),
        ("bigint", "+9223372036854775807", "9223372036854775807"),
        ("decimal(12,2)", "0.005", "0.01"),
        ("decimal(4,0)", "-12", "-12"),
        ("decimal(38,10)", "1234567890123456789012345678.5", "1234567890123456789012345678.5000000000"),
        ("double", "1e16", "1.0E16"),
        ("double", "123456789.5", "1.234567895E8"),
        ("double", "0.0001", "1.0E-4"),
        ("float", "12.5", "12.5"),
        ("boolean", "TRUE", "true"),
        ("date", "2026-01-31", '"2026-01-31"'),
        ("timestamp", "2026-01-31T12:00:00+02:00", '"2026-01-31T10:00:00.000000Z"'),
        ("varchar(3)", 'ü"', '"ü\\""'),
    ],
)
def test_values_are_written_as_spark_does(column_type: str, text: str, written: str) -> None:
    assert write_json_value(parse_cell(column_type, text, {})) == written


@pytest.mark.parametrize(
    ("column_type", "text", "options"),
    [
        ("tinyint", "128", {}),
        ("int", "1.0", {}),
        ("decimal(4,2)", "99.999", {}),
        ("decimal(4,2)", "1.5", {"locale": "de-DE"}),
        ("double", "NaN", {}),
        ("double", "1e400", {}),
        ("boolean", "yes", {}),
        ("date", "31.01.2026", {}),
        ("date", "2026-01-31", {"dateformat": "dd.MM.yyyy"}),
        ("timestamp_ntz", "2026-01-31T12:00:00", {}),
    ],
)
def test_a_text_that_spark_might_read_differently_is_not_accepted(
    column_type: str, text: str, options: dict[str, str]
) -> None:
    with pytest.raises(BadCell):
        parse_cell(column_type, text, options)


def test_a_bad_row_of_an_xml_file_is_found_by_its_number() -> None:
    rows = make(pipelines.Rows(), format="xml", schema="id bigint, region string, _at date").source
    assert rows is not None
    text = b'<all xmlns="urn:o"><order><id>1</id></order><x><order _at=""><id>x</id></order></x><order at="y"/></all>'
    assert find_xml_row(rows, text, 1) is None, "it fits the schema"
    row = find_xml_row(rows, text, 2)
    assert row == b'<order xmlns="urn:o" _at=""><id>x</id></order>'
    assert explain_bad_row(rows, row.decode(), (), ()) == "The column 'id' is bigint, but has 'x'."
    assert find_xml_row(rows, text, 3) == b'<order xmlns="urn:o" at="y"/>'
    assert find_xml_row(rows, text, 4) is None
    assert find_xml_row(rows, b"<all>", 1) is None
