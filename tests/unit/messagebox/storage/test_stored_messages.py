"""A stored context is decoded late, and is otherwise a context like any other."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from decimal import Decimal

from postroom.message import Context
from postroom.messagebox.storage.claimed_messages import StoredContext
from postroom.properties import Property
from postroom.system_properties import BTS

Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)
Rate = Property("Orders.Rate", float)
Urgent = Property("Orders.Urgent", bool)
At = Property("Orders.At", datetime)

CONTEXT = (
    Context()
    .promote(Region, "EU")
    .promote(Total, Decimal("12.50"))
    .promote(Urgent, True)
    .write(Rate, 0.1)
    .write(At, datetime(2026, 1, 31, 12, tzinfo=UTC))
)


def test_a_stored_context_equals_the_original_context() -> None:
    stored = StoredContext(CONTEXT.to_json(), {})
    assert stored == CONTEXT
    assert len(stored) == len(CONTEXT) == 5
    assert {prop.key for prop in stored} == {prop.key for prop in CONTEXT}
    assert stored[Total] == Decimal("12.50")
    assert stored[Urgent] is True
    assert stored.is_promoted(Region)
    assert not stored.is_promoted(Rate)
    assert Region in stored
    assert stored.get(BTS.SPName) is None


def test_added_values_replace_stored_values() -> None:
    stored = StoredContext(CONTEXT.to_json(), {Region.key: "US", BTS.SPName.key: "Europe", BTS.RetryCount.key: 3})
    assert len(stored) == 7
    assert (stored[Region], stored[BTS.SPName], stored[BTS.RetryCount]) == ("US", "Europe", 3)
    assert not stored.is_promoted(Region)
    assert stored.is_promoted(Total)


def test_the_same_addition_serves_many_messages() -> None:
    added = {BTS.SPName.key: "Europe"}
    first, second = StoredContext(CONTEXT.to_json(), added), StoredContext(Context().to_json(), added)
    assert (len(first), len(second)) == (6, 1)
    assert added == {BTS.SPName.key: "Europe"}


def test_changing_a_stored_context_returns_a_new_context() -> None:
    stored = StoredContext(CONTEXT.to_json(), {})
    changed = stored.promote(Region, "US")
    assert changed[Region] == "US"
    assert stored[Region] == "EU"
    assert stored.to_json() == CONTEXT.to_json()


def test_a_stored_context_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(StoredContext(CONTEXT.to_json(), {}))) == CONTEXT


def test_an_empty_context_and_other_attributes() -> None:
    stored = StoredContext("{}", {})
    assert len(stored) == 0
    assert not hasattr(stored, "anything")
