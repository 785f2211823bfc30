"""The stored contexts of a batch equal the contexts of single messages."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from postroom.agent.receiving.documents import build_context, encode_contexts
from postroom.message import Context
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
    stored = [Context.from_json(context[1:]) for context in encode_contexts([shared] * 3, columns, 3)]
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
    stored = encode_contexts(contexts, {Region.key: column}, len(column))
    assert [Context.from_json(context[1:]) for context in stored] == [
        Context({**context.promoted, Region.key: value} if value is not None else context.promoted)
        for context, value in zip(contexts, expected, strict=True)
    ]
