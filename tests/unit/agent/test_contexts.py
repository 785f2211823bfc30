"""The stored contexts of a batch are those that each message alone would have."""

from __future__ import annotations

import pyarrow as pa
import pytest

from postroom.agent.receiving.contexts import snapshot, stored_contexts
from postroom.message import Context
from postroom.properties import DistinguishedField, Property
from postroom.system_properties import BTS

Region = Property("Orders.Region", str)
Note = DistinguishedField("/*[local-name()='order']/*[local-name()='note']")
Other = DistinguishedField("/order/other")


@pytest.mark.parametrize("written", [{}, {BTS.ReceivePortName: "In"}])
def test_distinguished_fields_are_written_and_all_else_is_promoted(written: dict[Property, str]) -> None:
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
    stored = [Context.from_json(context[1:]) for context in stored_contexts([shared] * 3, columns, 3)]
    assert stored == expected
    assert [snapshot(shared, columns, row) for row in range(3)] == expected
