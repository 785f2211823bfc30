"""Simple messages are converted to the same rows as all others, column by column."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from postroom.adapters import SparkSink
from postroom.adapters.sink.definition import Body
from postroom.errors import MessageBoxUnavailable
from postroom.message import Message
from postroom.messagebox.sinks.sink_batches import SinkRows
from postroom.properties import Property
from postroom.spark.sinks import row_format
from postroom.spark.sinks.row_format import RowFormat, convert_rows, has_simple_columns
from postroom.system_properties import BTS

Region = Property("Orders.Region", str)
Count = Property("Orders.Count", int)
Total = Property("Orders.Total", Decimal)
Weight = Property("Orders.Weight", float)
Urgent = Property("Orders.Urgent", bool)
Due = Property("Orders.Due", datetime)
EVERY_TYPE = {"region": Region, "count": Count, "total": Total, "weight": Weight, "urgent": Urgent, "due": Due}
NOON = datetime(2026, 1, 31, 12, 0, 0, 125, tzinfo=UTC)


def make_format(columns: dict[str, Property], body: Body = "none", parsed: pa.Schema | None = None) -> RowFormat:
    return RowFormat(columns=SparkSink("parquet", "x", columns=columns).columns, body=body, parsed=parsed)


def to_stored(*messages: Message) -> SinkRows:
    """Return what the MessageBox returns of these messages, with their positions as numbers."""
    microseconds = (NOON - datetime(2000, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return SinkRows(
        seqs=range(len(messages)),
        is_simple=[True] * len(messages),
        message_ids=[str(message.message_id) for message in messages],
        contexts=[message.context.to_json() for message in messages],
        bodies=[message.data for message in messages],
        published_at=[microseconds] * len(messages),
    )


def convert(format: RowFormat, *messages: Message) -> tuple[list[dict[str, object]], list[int]]:
    batches, failed = convert_rows(format, to_stored(*messages))
    return [row for batch in batches for row in batch.to_pylist()], failed


MESSAGES = [
    Message.of(
        "größe\n\t".encode(),
        promoted={Region: "EU", Count: -7, Total: Decimal("12.50"), BTS.MessageType: "order"},
        written={Weight: 1.5e300, Urgent: True, Due: NOON, BTS.InterchangeID: str(uuid.uuid4())},
    ),
    Message.of(b""),
    Message.of(
        b"x",
        promoted={Region: "", Urgent: False, Due: datetime.fromisoformat("1969-01-31T12:00:00+05:00")},
        written={Total: Decimal("1E+3"), Count: 2**63 - 1, Weight: 3.0},
    ),
    Message.of(b"y", written={Total: Decimal(7)}),
]


@pytest.mark.parametrize("body", ["binary", "text", "none"])
def test_the_rows_are_those_of_the_general_conversion(body: Body) -> None:
    format = make_format(EVERY_TYPE | {"again": Region}, body)
    expected, refused = format.convert([(message, NOON) for message in MESSAGES])
    assert refused == []
    [batch], failed = convert_rows(format, to_stored(*MESSAGES))
    assert failed == []
    assert batch.equals(expected)


def test_columns_are_read_from_json_bodies() -> None:
    format = make_format({}, "text", pa.schema([("id", pa.int64())]))
    rows, failed = convert(format, Message.of(b'{"id": 1,\n "more": 2}'), Message.of(b"{}"))
    assert [(row["id"], row["body"]) for row in rows] == [(1, '{"id": 1,\n "more": 2}'), (None, "{}")]
    assert failed == []


def test_only_messages_near_one_that_cannot_be_converted_are_left_out() -> None:
    messages = [Message.of(b"x" if number != 700 else b"\xff") for number in range(1000)]
    rows, failed = convert(make_format({}, "text"), *messages)
    assert 700 in failed
    assert len(failed) <= row_format._SMALL
    kept = [str(message.message_id) for number, message in enumerate(messages) if number not in failed]
    assert [row["message_id"] for row in rows] == kept


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (Property("Orders.Value", str), 1),
        (Property("Orders.Value", int), True),
        (Property("Orders.Value", int), Decimal(1)),
        (Property("Orders.Value", bool), 1),
        (Property("Orders.Value", float), Decimal(1)),
        (Property("Orders.Value", Decimal), "1"),
        (Property("Orders.Value", Decimal), Decimal("1E-30")),
        (Property("Orders.Value", Decimal), Decimal(10**21)),
        (Property("Orders.Value", datetime), "2026-01-31"),
    ],
)
def test_a_value_of_another_type_is_left_to_the_general_conversion(column: Property, value: object) -> None:
    message = Message.of(b"", promoted={Property("Orders.Value", type(value)): value})
    assert convert(make_format({"value": column}), message) == ([], [0])
    _, [refusal] = make_format({"value": column}).convert([(message, NOON)])
    assert "does not fit into the column" in refusal.failure.what


def test_an_environment_error_ends_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MessageBoxUnavailable("away")

    monkeypatch.setattr(row_format, "_convert", fail)
    with pytest.raises(MessageBoxUnavailable):
        convert(make_format({}), Message.of(b""))


def test_the_originator_is_not_read_from_the_context() -> None:
    """Every publisher can write any value there."""
    assert has_simple_columns(make_format(EVERY_TYPE))
    assert not has_simple_columns(make_format({"by": BTS.OriginatorSID}))
    assert not has_simple_columns(make_format({"by": BTS.OriginatorPID}))
