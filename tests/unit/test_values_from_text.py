"""Parsing of values in text filters and text fields."""

from __future__ import annotations

import time
from decimal import Decimal

import pytest

from postroom.errors import BadValue
from postroom.values import ValueType, check_value, value_from_text


@pytest.mark.parametrize("value_type", [ValueType.INT, ValueType.DECIMAL, ValueType.FLOAT])
def test_grouped_digits_are_rejected(value_type: ValueType) -> None:
    with pytest.raises(BadValue):
        value_from_text(value_type, "1_000")


def test_a_time_outside_the_calendar_in_utc_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "EST5")
    time.tzset()
    try:
        with pytest.raises(BadValue, match="date and time"):
            value_from_text(ValueType.DATETIME, "9999-12-31T23:59:59")
    finally:
        monkeypatch.undo()
        time.tzset()


def test_trailing_zeros_do_not_count_as_digits() -> None:
    assert str(check_value(ValueType.DECIMAL, Decimal("-1." + "0" * 100_000))) == "-1"
    assert str(check_value(ValueType.DECIMAL, Decimal("1.10"))) == "1.10"
    assert check_value(ValueType.DECIMAL, Decimal("9" * 38)) == Decimal("9" * 38)
    for text in ("9" * 39, "1" + "0" * 38, "1e-39"):
        with pytest.raises(BadValue, match="38 digits"):
            check_value(ValueType.DECIMAL, Decimal(text))
