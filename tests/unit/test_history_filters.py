"""Which filters of Spark go to PostgreSQL, and what they say there."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    In,
    IsNotNull,
    IsNull,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from postroom.errors import DefinitionError
from postroom.spark.history.filters import condition
from postroom.spark.history.tables import MESSAGES, QUEUES

ID = "3c1cde7d-c518-8e11-bdf9-e30000000001"
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("filter", "text", "values"),
    [
        (EqualTo(("message_id",), ID), "message_id = %s::uuid", [ID]),
        (EqualTo(("message_type",), "Order"), 'message_type COLLATE "C" = %s::text', ["Order"]),
        (Not(EqualTo(("message_type",), "O")), 'NOT (message_type COLLATE "C" = %s::text)', ["O"]),
        (EqualNullSafe(("party",), "P"), 'party COLLATE "C" IS NOT DISTINCT FROM %s::text', ["P"]),
        (GreaterThan(("published_at",), NOON), "published_at > %s::timestamptz", [NOON]),
        (LessThanOrEqual(("size",), 10), "size <= %s::bigint", [10]),
        (In(("message_id",), (ID,)), "message_id = ANY (%s::uuid[])", [[ID]]),
        (IsNull(("charset",)), "charset IS NULL", []),
        (Not(IsNotNull(("body",))), "NOT (body IS NOT NULL)", []),
        (StringStartsWith(("receive_port",), "Or"), "starts_with(receive_port::text, %s::text)", ["Or"]),
        (StringContains(("message_id",), "7d"), "strpos(message_id::text, %s::text) > 0", ["7d"]),
        (
            StringEndsWith(("party",), "x"),
            "right(party::text, length(%s::text)) = %s::text",
            ["x", "x"],
        ),
    ],
)
def test_what_both_mean_alike_goes_to_postgresql(filter: Filter, text: str, values: list[object]) -> None:
    assert condition(filter, MESSAGES) == (text, values)


@pytest.mark.parametrize(
    "filter",
    [
        EqualTo(("message_id",), ID.upper()),  # another text, though the same id
        EqualTo(("message_id",), "no id"),
        In(("message_id",), (ID, "no id")),
        GreaterThan(("published_at",), NOON.replace(tzinfo=None)),
        EqualTo(("message_type",), "a\0"),
        EqualTo(("parts",), 2**40),
        EqualTo(("body",), b"x"),
        EqualTo(("context", "x"), "y"),
        EqualTo(("no_column",), 1),
        Not(EqualTo(("no_column",), 1)),
        EqualTo(("party",), None),
    ],
)
def test_everything_else_is_left_to_spark(filter: Filter) -> None:
    assert condition(filter, MESSAGES) is None


def test_a_table_has_its_columns_but_not_the_costly_ones_unless_they_are_named() -> None:
    assert "body" not in MESSAGES.schema()
    assert MESSAGES.schema(["message_id", "body"]) == "message_id string, body binary"
    assert "seq bigint" in QUEUES.schema()
    with pytest.raises(DefinitionError, match="no column 'colour'"):
        QUEUES.schema(["colour"])
