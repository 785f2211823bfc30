"""The rows of a reader become messages, by whole columns (CTX-07, CTX-13, RCV-14)."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from postroom import Property, pipelines
from postroom.errors import PipelineFailure
from postroom.message import FRAGMENT_SIZE, Bytes
from postroom.pipelines.rows.batch import RowMessages, read_rows

Text = Property("Orders.Text", str)
Number = Property("Orders.Number", int)
Exact = Property("Orders.Exact", Decimal)
Share = Property("Orders.Share", float)
Flag = Property("Orders.Flag", bool)
At = Property("Orders.At", datetime)


def read(prop: Property, column: pa.Array, *, bad: list[str | None] | None = None) -> RowMessages:
    pipeline = pipelines.Rows(promote={prop: "it"}).with_columns(("it",), None)
    columns = {"body": pa.array([b"row %d" % n for n in range(len(column))]), "value0": column}
    if bad is not None:
        columns["bad"] = pa.array(bad, pa.string())
    return read_rows(pipeline, pa.RecordBatch.from_pydict(columns), 11)


@pytest.mark.parametrize(
    ("prop", "column", "promoted"),
    [
        (Text, pa.array(["EU", None, "", "x" * 256]), ["EU", None, "", "x" * 256]),
        (Number, pa.array([1, None, -5], pa.int16()), [1, None, -5]),
        (Exact, pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)), [Decimal("1.5"), None]),
        (Exact, pa.array([2**62, -3], pa.int64()), [2**62, -3]),
        (Exact, pa.array([Decimal("9" * 38)], pa.decimal128(38, 0)), [Decimal("9" * 38)]),
        (Share, pa.array([0.5, None], pa.float32()), [0.5, None]),
        (Flag, pa.array([True, None, False]), [True, None, False]),
        (
            At,
            pa.array([datetime(2026, 1, 31, tzinfo=UTC)], pa.timestamp("us", "UTC")),
            [datetime(2026, 1, 31, tzinfo=UTC)],
        ),
    ],
)
def test_values_are_not_converted(prop: Property, column: pa.Array, promoted: list[object]) -> None:
    found = read(prop, column)
    assert found.failures == ()
    assert found.messages[prop.key].to_pylist() == promoted
    assert found.messages["number"].to_pylist() == list(range(11, 11 + len(column)))


@pytest.mark.parametrize(
    ("prop", "column"),
    [
        (Text, pa.array(["EU", "x" * 257])),
        (Text, pa.array(["EU", "a\0b"])),
        (Share, pa.array([1.0, float("nan")])),
        (Share, pa.array([1.0, float("inf")])),
        (At, pa.array([0, 300_000_000_000_000_000], pa.int64()).cast(pa.timestamp("us", "UTC"))),
    ],
)
def test_a_row_whose_value_the_property_cannot_have_is_bad_alone(prop: Property, column: pa.Array) -> None:
    found = read(prop, column)
    assert found.messages["number"].to_pylist() == [11]
    [bad] = found.failures
    assert (bad.number, bad.body) == (12, b"row 1")
    assert bad.failure.what == f"Row 12: {prop.dotted_name} cannot be promoted from 'it'."


def test_a_sensitive_value_is_not_shown() -> None:
    secret = Property("Orders.Secret", str, sensitive=True)
    [bad] = read(secret, pa.array(["s3cret" * 60])).failures
    assert "s3cret" not in str(bad.failure)


def test_an_unreadable_row_is_suspended_with_its_original_bytes() -> None:
    found = read(Number, pa.array([1, None, 3]), bad=[None, "what, is this", None])
    assert found.messages["number"].to_pylist() == [11, 13]
    [bad] = found.failures
    assert (bad.number, bad.body) == (12, b"what, is this")
    assert "does not fit the schema" in bad.failure.what


def test_large_bodies_are_concatenated() -> None:
    bodies = [b"a", b"b" * (FRAGMENT_SIZE + 1), b"c", b"d" * (FRAGMENT_SIZE + 2)]
    found = read_rows(pipelines.Rows(column="it"), pa.RecordBatch.from_pydict({"body": pa.array(bodies)}), 1)
    assert found.messages["body"].to_pylist() == [b"a", None, b"c", None]
    assert found.messages["offset"].to_pylist() == [None, 0, None, FRAGMENT_SIZE + 1]
    assert found.large == bodies[1] + bodies[3]


def test_a_row_without_a_body_is_bad() -> None:
    found = read_rows(pipelines.Rows(column="it"), pa.RecordBatch.from_pydict({"body": pa.array([b"a", None])}), 1)
    assert [bad.number for bad in found.failures] == [2]
    assert "the column 'it'" in found.failures[0].failure.what


def test_a_corrected_row_is_read_in_the_format_of_the_message() -> None:
    rows = pipelines.Rows(promote={Text: "a.b", Number: "n"}, message_type="order")
    [batch] = rows.with_columns(("a.b", "n"), None).disassemble(Bytes(b'{"a.b": "EU", "n": 3}'))
    assert [batch.messages[name].to_pylist() for name in (Text.key, Number.key, "message_type")] == [
        ["EU"],
        [3],
        ["order"],
    ]
    csv = pipelines.Rows(promote={Text: "a", Number: "n"}, body="csv").with_columns(("a", "n"), None)
    [batch] = csv.disassemble(Bytes(b'"E,U",3'))
    assert [batch.messages[name].to_pylist() for name in (Text.key, Number.key)] == [["E,U"], [3]]
    [batch] = pipelines.Rows(column="value").disassemble(Bytes(b"a line"))
    assert batch.messages["body"].to_pylist() == [b"a line"]
    with pytest.raises(PipelineFailure, match="A bad row cannot be resumed"):
        list(pipelines.Rows(promote={Text: "key"}, column="value").disassemble(Bytes(b"a line")))
