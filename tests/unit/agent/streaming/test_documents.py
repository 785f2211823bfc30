"""The stored and the matched contexts of a batch equal the contexts of single messages."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from postroom.adapters import HttpReceive
from postroom.agent.originator import PublisherLogin
from postroom.agent.streaming.documents import Documents, build_context, encode_contexts
from postroom.agent.streaming.interchange import Chunk, Interchange
from postroom.message import Bytes, Context
from postroom.ports.receive_locations import ReceiveLocation
from postroom.properties import DistinguishedField, Property
from postroom.system_properties import BTS

Region = Property("Orders.Region", str)
Note = DistinguishedField("/*[local-name()='order']/*[local-name()='note']")
Other = DistinguishedField("/order/other")

NOW = datetime(2026, 1, 31, 12, 0, 0, 123, tzinfo=UTC)


@pytest.mark.parametrize("written", [{}, {BTS.ReceivePortName: "In"}])
def test_distinguished_fields_are_written_and_properties_are_promoted(written: dict[Property, str]) -> None:
    shared = Context().promote(BTS.ReceiveLocationName, "drop")
    for prop, value in written.items():
        shared = shared.write(prop, value)
    columns = {
        Note.key: pa.array(['first "note"', None, "third"]),
        Region.key: pa.array(["EU", "US", None]),
        Other.key: pa.array([None, None, "x" * 300]),
    }
    expected = [
        shared.promote(Region, "EU").write(Note, 'first "note"'),
        shared.promote(Region, "US"),
        shared.write(Note, "third").write(Other, "x" * 300),
    ]
    # The first byte is the version of jsonb's binary form.
    stored = [Context.from_json(context[1:]) for context in encode_contexts([shared] * 3, columns)]
    assert stored == expected
    assert [build_context(shared, columns, row) for row in range(3)] == expected


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, None, -(2**63)]), [1, None, -(2**63)]),
        (
            pa.array([Decimal("0"), Decimal("-12.50"), None], pa.decimal128(38, 10)),
            [Decimal("0"), Decimal("-12.5"), None],
        ),
        (
            pa.array([Decimal("0.00000001"), Decimal("100"), Decimal("-0.1")], pa.decimal256(76, 38)),
            [Decimal("0.00000001"), Decimal("100"), Decimal("-0.1")],
        ),
        (pa.array([Decimal("100"), None], pa.decimal128(38, 0)), [Decimal("100"), None]),
        (pa.array([True, None, False]), [True, None, False]),
        (pa.array([0.1, None, -1e300]), [0.1, None, -1e300]),
        (pa.array(['ä"', None, "x"]).dictionary_encode(), ['ä"', None, "x"]),
        (pa.array([NOW, None, NOW], pa.timestamp("us", "UTC")), [NOW, None, NOW]),
        (pa.array([None, None], pa.string()), [None, None]),
    ],
)
def test_values_of_every_type_are_stored_as_for_a_single_message(column: pa.Array, expected: list[Any]) -> None:
    shared = [Context().promote(BTS.ReceiveLocationName, "drop"), Context().promote(BTS.ReceiveLocationName, "other")]
    contexts = [shared[row % 2] for row in range(len(column))]
    stored = encode_contexts(contexts, {Region.key: column})
    assert [Context.from_json(context[1:]) for context in stored] == [
        Context({**context.promoted, Region.key: value} if value is not None else context.promoted)
        for context, value in zip(contexts, expected, strict=True)
    ]


@pytest.mark.parametrize(
    ("shared", "columns"),
    [
        (["EU"], [pa.array([None, "ASIA"])]),
        (["EU"], [pa.array([None, "ASIA"]).dictionary_encode()]),
        (["EU"], [pa.array([None, None], pa.string())]),
        (["EU", "US"], [pa.array([None, "ASIA"]), pa.array([None, "AFRICA"])]),
        ([Decimal("1.5")], [pa.array([None, Decimal("2")], pa.decimal128(38, 0))]),
        ([Decimal("1.5"), Decimal("2.5")], [pa.array([None, Decimal("2")], pa.decimal128(38, 0))] * 2),
        ([7, 8], [pa.array([None, 9], pa.int32())] * 2),
    ],
)
def test_a_value_that_a_document_lacks_is_matched_with_the_value_of_its_interchange(
    shared: list[Any], columns: list[pa.Array]
) -> None:
    chunks = [build_chunk(Context({Region.key: value}), column) for value, column in zip(shared, columns, strict=True)]
    documents = Documents(LOCATION, "text/plain", chunks, PublisherLogin(account="main", trusted=False))
    matched = documents.promoted[Region.key]
    rows = sum(map(len, columns))
    values = matched.to_pylist() if isinstance(matched, pa.Array) else [matched] * rows
    assert values == [documents.build_context(row)[Region] for row in range(rows)]
    assert values[0] == shared[0]


LOCATION = ReceiveLocation(
    name="web",
    definition={"adapter": HttpReceive("/orders", port=8080).model_dump(mode="json")},
    location_id=uuid.uuid4(),
    port_id=uuid.uuid4(),
    port={"name": "In"},
    host_id=1,
    uri="http://127.0.0.1:8080/orders",
    enabled=True,
)


def build_chunk(context: Context, regions: pa.Array) -> Chunk:
    rows = len(regions)
    table = pa.table(
        {
            "number": pa.array(range(1, rows + 1), pa.int64()),
            "body": pa.array([b"x"] * rows),
            "message_type": pa.array([None] * rows, pa.string()),
            Region.key: regions,
        }
    )
    interchange = Interchange(interchange_id=uuid.uuid4(), body=Bytes(b""), context=context)
    return Chunk(
        interchange=interchange, number=0, documents=table, recoverable=False, last_document=rows, is_last=True
    )
