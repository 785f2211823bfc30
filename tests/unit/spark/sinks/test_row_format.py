"""Messages are converted to the rows of a sink."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from postroom.adapters import SparkSink
from postroom.errors import ClaimLost, MessageBoxUnavailable
from postroom.message import Context, Message
from postroom.messagebox.sinks.sink_batches import CHUNK_MESSAGES
from postroom.properties import Property
from postroom.spark.sinks.row_format import RowFormat
from postroom.spark.sinks.task import split_into_ranges
from postroom.system_properties import BTS

Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def convert(format: RowFormat, *messages: Message) -> tuple[list[dict[str, object]], dict[int, str]]:
    batch, refused = format.convert([(message, NOON) for message in messages])
    assert batch.schema == format.schema
    return batch.to_pylist(), {refusal.index: refusal.failure.what for refusal in refused}


def test_a_row_has_context_values_and_the_body() -> None:
    format = RowFormat(columns=SparkSink("parquet", "x", columns=[Region, Total]).columns, body="binary")
    message = Message.of(
        b"\xff",
        promoted={Region: "EU", BTS.MessageType: "Order"},
        written={Total: Decimal("1.50"), BTS.InterchangeID: "i"},
    )
    [row], refused = convert(format, message)
    assert row == {
        "message_id": str(message.message_id),
        "interchange_id": "i",
        "message_type": "Order",
        "received_at": NOON,
        "Region": "EU",
        "Total": Decimal("1.50"),
        "body": b"\xff",
    }
    assert refused == {}


def test_a_message_that_cannot_be_converted_is_returned_with_its_failure() -> None:
    total = SparkSink("parquet", "x", columns=[Total]).columns
    format = RowFormat(columns=total, body="text")
    messages = [
        Message.of(b"good", promoted={Total: Decimal(1)}),
        Message.of(b"\xff", promoted={}),
        Message.of(b"x", written={Total: Decimal("1E-30")}),
        Message(context=Message.of(b"").context, parts=()),
        Message.of("gr\u00fc\u00df".encode("latin-1")),
    ]
    rows, refused = convert(format, *messages)
    assert [row["body"] for row in rows] == ["good"]
    assert refused.keys() == {1, 2, 3, 4}
    assert refused[1] == "The body is not text in utf-8."
    assert refused[2] == "Orders.Total does not fit into the column 'Total'."
    assert "has no body part" in refused[3]


def test_columns_are_read_from_json_bodies() -> None:
    parsed = pa.schema([("id", pa.int64()), ("total", pa.decimal128(12, 2))])
    format = RowFormat(columns=(), body="none", parsed=parsed)
    bodies = [b'{"id": 1,\r\n "total": 1.25, "more": "x"}', b"[1]", b"no", b'{"id": "one"}', b"{}", b'{"total": 1.255}']
    rows, refused = convert(format, *map(Message.of, bodies))
    assert [(row["id"], row["total"]) for row in rows] == [(1, Decimal("1.25")), (None, None)]
    assert refused == {
        1: "The body is JSON, but not an object.",
        2: "The body is not JSON.",
        3: "The body does not have the columns of the sink.",
        5: "The body does not have the columns of the sink.",
    }


DEEP = b'{"id": 2, "a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def test_a_deeply_nested_body_fails_alone() -> None:
    format = RowFormat(columns=(), body="none", parsed=pa.schema([("id", pa.int64())]))
    rows, refused = convert(format, *map(Message.of, (b'{"id": 1}', DEEP, b'{"id": 3}')))
    assert [row["id"] for row in rows] == [1, 3]
    assert refused == {1: "The body is nested too deeply to be read."}


def test_an_unexpected_error_of_one_row_does_not_affect_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow rejects a value, or the JSON reader fails."""
    format = RowFormat(columns=SparkSink("parquet", "x", columns=[Region]).columns, body="none")
    monkeypatch.setattr("postroom.spark.sinks.row_format._value", lambda _, message: message.context.get(Region))
    messages = [Message.of(b"", promoted={Region: region}) for region in ("EU", "US", "UK")]
    object.__setattr__(messages[1], "context", Odd(messages[1].context))
    rows, refused = convert(format, *messages)
    assert [row["Region"] for row in rows] == ["EU", "UK"]
    assert refused == {1: "The message cannot be converted to a row."}


class Odd:
    """A context whose values fit no column."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def get(self, prop: Property) -> object:
        return {"no": "text"} if prop == Region else self._context.get(prop)


@pytest.mark.parametrize(
    "error", [MessageBoxUnavailable("away"), OSError(28, "No space left"), MemoryError(), ClaimLost("gone")]
)
def test_an_environment_error_ends_the_attempt(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def raises(_: Message) -> bytes:
        raise error

    monkeypatch.setattr("postroom.spark.sinks.row_format._read_body", raises)
    format = RowFormat(columns=(), body="binary")
    with pytest.raises(type(error)):
        format.convert([(Message.of(b"a"), NOON)])


def test_a_batch_without_convertible_messages_has_no_rows() -> None:
    format = RowFormat(columns=(), body="none", parsed=pa.schema([("id", pa.int64())]))
    rows, refused = convert(format, Message.of(b"no"))
    assert (rows, len(refused)) == ([], 1)


def test_a_batch_is_split_into_ranges_of_its_numbers() -> None:
    assert split_into_ranges([]) == []
    assert split_into_ranges([2, 3, 7]) == [(2, 7)]
    even = range(0, 2 * (2 * CHUNK_MESSAGES + 1), 2)
    last = 4 * CHUNK_MESSAGES
    assert split_into_ranges(even) == [(0, last // 2 - 2), (last // 2, last - 2), (last, last)]
