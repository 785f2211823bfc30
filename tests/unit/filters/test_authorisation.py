"""Message predicates are compared with the properties of a host (SEC-01 … 06)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from postroom.filters.authorisation import (
    NO_APPLICATION_PROPERTIES,
    MessagePredicate,
    comparable_text,
    find_unmet,
    may_receive,
)
from postroom.values import Value

T: MessagePredicate = ("Security#Thumbprint", "T")
LEVEL: MessagePredicate = ("Security#Level", 3)


def test_a_message_without_predicates_may_go_to_every_host() -> None:
    assert may_receive(frozenset(), NO_APPLICATION_PROPERTIES)
    assert may_receive(frozenset(), {("Security#Thumbprint", "T")})


def test_every_predicate_has_to_match_a_property_of_the_host() -> None:
    both = {("Security#Thumbprint", "T"), ("Security#Level", "3")}
    assert may_receive({T, LEVEL}, both)
    assert not may_receive({T, LEVEL}, {("Security#Thumbprint", "T")})
    assert find_unmet({T, LEVEL}, {("Security#Thumbprint", "T")}) == [LEVEL]
    assert find_unmet({T, LEVEL}, NO_APPLICATION_PROPERTIES) == [LEVEL, T]


@pytest.mark.parametrize(
    "shown", [("Security#Thumbprint", "t"), ("security#Thumbprint", "T"), ("Security#Thumbprint", "T ")]
)
def test_text_is_compared_case_sensitively(shown: tuple[str, str]) -> None:
    assert not may_receive({T}, {shown})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Decimal("5"), Decimal("5.00")),
        (Decimal("0"), Decimal("-0.0")),
        (Decimal("1E+3"), Decimal("1000")),
        (0.0, -0.0),
        (
            datetime(2026, 1, 31, 12, tzinfo=UTC),
            datetime(2026, 1, 31, 13, tzinfo=timezone(timedelta(hours=1))),
        ),
    ],
)
def test_equal_values_have_the_same_text(one: Value, other: Value) -> None:
    assert comparable_text(one) == comparable_text(other)


def test_different_values_have_different_texts() -> None:
    values: list[Value] = ["", "a", "A", Decimal("0.1"), Decimal("0.10000000000000001"), 2, 20, Decimal("200"), 1e16]
    assert len({comparable_text(value) for value in values}) == len(values)
