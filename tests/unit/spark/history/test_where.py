"""The option ``where`` of the history source, and the columns of its tables."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from postroom.errors import BadFilter, DefinitionError
from postroom.spark.history.history_tables import MESSAGES, QUEUES, parse_where

ID = "6f1b2c3d-0000-4000-8000-00000000007d"


@pytest.mark.parametrize(
    ("text", "sql", "values"),
    [
        ("party == 'Guest'", '(party COLLATE "C" = %s::text)', ["Guest"]),
        ('messages.party != "it\'s"', '(party COLLATE "C" <> %s::text)', ["it's"]),
        ("size >= 10 and size < 20", "(size >= %s::bigint AND size < %s::bigint)", [10, 20]),
        ("parts == 1 or exists(charset)", "(parts = %s::bigint OR charset IS NOT NULL)", [1]),
        ("parts & 2", "((parts & %s::bigint) <> 0)", [2]),
        (f"message_id == '{ID.upper()}'", "(message_id = %s::uuid)", [ID]),
        (
            "published_at > '2026-01-31T12:00:00Z'",
            "(published_at > %s::timestamptz)",
            [datetime(2026, 1, 31, 12, tzinfo=UTC)],
        ),
        (
            "(parts == 1 or parts == 2) and size > 9",
            "(parts = %s::bigint AND size > %s::bigint OR parts = %s::bigint AND size > %s::bigint)",
            [1, 9, 2, 9],
        ),
    ],
)
def test_a_filter_becomes_a_condition_with_parameters(text: str, sql: str, values: list[object]) -> None:
    assert parse_where(text, MESSAGES) == (sql, values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "The option where cannot be read. The filter is empty."),
        ("colour == 'red'", "There is no column colour"),
        ("colour == 'red'", "The columns that can be compared are message_id, published_at"),
        ("partie == 'x'", "Did you mean party"),
        ("body == 'x'", "There is no column body"),
        ("party = 'x'", "Write == to compare"),
        ("party == x", "Put text values in quotes"),
        ("party in ('x', 'y')", "join comparisons with"),
        ("party is null", "'is' is found where"),
        ("message_id == '7d'", "message_id is compared with '7d', which is not an id"),
        ("published_at > 'yesterday'", "yesterday"),
        ("size > 'large'", "large"),
        ("exists()", "where a column is expected"),
        ("party == 'x'; DROP TABLE spool", "; does not belong here"),
        ("party == 'x' or 1 == 1", "where a column, exists(...) or a parenthesis is expected"),
        ("party == 'x') OR (true", "where and, or, or the end is expected"),
        ("party == 'x' -- and", "-- does not belong here"),
        ("pg_sleep(1) == 1", "There is no column pg_sleep"),
        ("party == 'a\\u{0}'", "NUL"),
    ],
)
def test_any_other_text_is_rejected_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(BadFilter) as caught:
        parse_where(text, MESSAGES)
    assert message in str(caught.value)


def test_bodies_are_read_only_if_they_are_selected() -> None:
    assert "body" not in MESSAGES.schema()
    assert MESSAGES.schema(["message_id", "body"]) == "message_id string, body binary"
    assert "seq bigint" in QUEUES.schema()
    with pytest.raises(DefinitionError, match="no column 'colour'"):
        QUEUES.schema(["colour"])
