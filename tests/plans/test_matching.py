"""The SQL function find_subscriptions reads only the groups whose access equality matches."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.support.box import Box, Region
from tests.support.databases import Databases
from tests.support.many_subscriptions import subscribe_many
from tests.support.plans import reads

MANY = 20_000


@pytest.fixture(scope="module")
def many_subscriptions(databases: Databases) -> Iterator[Box]:
    """Yield a box with 20,000 subscriptions, each with a region of its own and totals of at least 100."""
    with databases.open_box() as box:
        subscribe_many(box, MANY)
        yield box


def test_the_first_pass_is_an_index_lookup(many_subscriptions: Box) -> None:
    box = many_subscriptions
    region = box.one("SELECT id FROM properties WHERE key = %s", Region.key)
    total = box.one("SELECT id FROM properties WHERE key LIKE %s", "%#Total")
    regions = [value for (value,) in box.connection.execute("SELECT value_text FROM first_pass_predicates LIMIT 10")]
    for _ in range(3):
        with box.connection.transaction(force_rollback=True):
            batch = uuid.uuid4()
            with box.connection.cursor() as cursor:
                for value in regions:
                    message = uuid.uuid4()
                    cursor.execute(
                        "INSERT INTO message_properties (batch_id, message_id, property_id, value_text, value_decimal)"
                        " VALUES (%s, %s, %s, %s, NULL), (%s, %s, %s, NULL, 150)",
                        (batch, message, region, value, batch, message, total),
                    )
            with reads(box.connection) as read:
                found = box.connection.execute("SELECT * FROM find_subscriptions(%s)", (batch,)).fetchall()
        assert len(found) == len(regions)
        tables = (
            "first_pass_predicates",
            "greater_than_or_equals_predicates",
            "predicate_groups",
            "subscriptions",
            "message_properties",
        )
        assert read.whole(*tables) == 0
        assert read.entries("first_pass_predicates_property_id_value_key_idx") == len(regions)
