"""A publish reads one instance subscription per correlation, independent of the number of waiting instances."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from postroom.agent.routing.correlation import correlation_hash
from tests.support.box import Box, Priority, Region
from tests.support.databases import Databases
from tests.support.plans import reads

MANY = 20_000

_WAIT = """
    INSERT INTO subscriptions (host_id, service_class, service_id, service_name, state, instance_id,
                               correlation_type_id, correlation_values, correlation_hash)
    SELECT 1, 'orchestrations', gen_random_uuid(), 'Approval', 'started', gen_random_uuid(), t.id, v.wanted,
           correlation_hash(t.id, v.wanted)
      FROM correlation_types t, generate_series(1, %s) n, LATERAL (SELECT ARRAY['R' || n %% 100, n::text]) v (wanted)
"""


@pytest.fixture(scope="module")
def many_waiting(databases: Databases) -> Iterator[Box]:
    """Yield a box with 20,000 instances that wait for different regions and priorities, with statistics from before."""
    with databases.open_box() as box:
        box.connection.execute("ANALYZE subscriptions")
        box.connection.execute(
            "SELECT correlation_type(array_agg(id ORDER BY id)) FROM properties WHERE key = ANY (%s)",
            ([Region.key, Priority.key],),
        )
        box.connection.execute(_WAIT, (MANY,))
        yield box


def test_hashes_are_looked_up_in_their_index(many_waiting: Box) -> None:
    box = many_waiting
    hashes = [correlation_hash((1, (f"R{n % 100}", str(n)))) for n in range(1, 11)]
    for _ in range(3):
        with box.connection.transaction(force_rollback=True), reads(box.connection) as read:
            found = box.connection.execute("SELECT * FROM find_instance_subscriptions(%s)", (hashes,)).fetchall()
            ids = [row[3] for row in found]
            assert box.connection.execute(
                "SELECT all_there FROM lock_instance_subscriptions(%s)", (ids,)
            ).fetchone() == (True,)
        assert len(found) == 10
        assert read.whole("subscriptions") == 0
        assert read.entries("subscriptions_correlation") == 10
        assert read.entries("subscriptions_pkey") <= 30  # to find, to lock and to recheck each subscription


def test_find_subscriptions_looks_up_hashes_in_their_index(many_waiting: Box) -> None:
    box = many_waiting
    ids: dict[str, int] = dict(box.connection.execute("SELECT key, id FROM properties").fetchall())
    for _ in range(3):
        with box.connection.transaction(force_rollback=True):
            batch = uuid.uuid4()
            for n in range(1, 11):
                message = uuid.uuid4()
                box.connection.execute(
                    "INSERT INTO message_properties (batch_id, message_id, property_id, value_text, value_int)"
                    " VALUES (%s, %s, %s, %s, NULL), (%s, %s, %s, NULL, %s)",
                    (batch, message, ids[Region.key], f"R{n % 100}", batch, message, ids[Priority.key], n),
                )
            with reads(box.connection) as read:
                found = box.connection.execute("SELECT * FROM find_subscriptions(%s)", (batch,)).fetchall()
        assert len(found) == 10
        assert read.whole("subscriptions", "message_properties") == 0
        assert read.entries("subscriptions_correlation") == 10


def test_completing_an_instance_reads_only_its_own_subscriptions(many_waiting: Box) -> None:
    box = many_waiting
    instance = box.one("SELECT instance_id FROM subscriptions LIMIT 1")
    for _ in range(3):
        with box.connection.transaction(force_rollback=True), reads(box.connection) as read:
            box.connection.execute("SELECT * FROM complete_instance_default(%s)", (instance,)).fetchall()
        assert read.whole("subscriptions", "default_q", "default_q_suspended", "default_q_scheduled") == 0
        assert read.entries("subscriptions_instance") <= 10  # row versions of rolled back transactions count too
