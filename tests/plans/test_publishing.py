"""A publish reads only the subscriptions that the message matches."""

from __future__ import annotations

import uuid

from tests.support.box import Box
from tests.support.plans import reads

_SUBSCRIBE = """
    INSERT INTO subscriptions (host_id, service_class, service_id, service_name, state)
    SELECT 1, 'messaging_in_process', gen_random_uuid(), 'port ' || n, 'started' FROM generate_series(1, 2000) n
"""
_INSERT = """
    SELECT insert_message((SELECT version FROM routing_version), %(message)s, '{}', %(subscriptions)s, %(instances)s,
                          ARRAY[5, 5, 5]::smallint[], ARRAY[%(part)s::uuid], %(part)s, 'body', 'text/plain', NULL, 1,
                          'x')
"""
_INDEXES = """
    SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 'subscriptions'::regclass AND NOT indisprimary
"""


def test_subscriptions_are_read_by_their_ids_before_there_are_statistics(box: Box) -> None:
    box.connection.execute(_SUBSCRIBE)
    _check_reads_of_a_publish(box)


def _check_reads_of_a_publish(box: Box) -> None:
    matched = [row[0] for row in box.connection.execute("SELECT id FROM subscriptions ORDER BY id DESC LIMIT 3")]
    others = [row[0] for row in box.connection.execute(_INDEXES)]
    assert others
    for _ in range(7):  # PostgreSQL may use a generic plan after the fifth execution
        with box.connection.transaction(force_rollback=True), reads(box.connection) as read:
            new = {name: uuid.uuid4() for name in ("message", "part")}
            instances = [uuid.uuid4() for _ in matched]
            inserted = box.connection.execute(
                _INSERT, {**new, "subscriptions": matched, "instances": instances}
            ).fetchone()
        assert inserted == (3,)
        assert read.whole("subscriptions") == 0
        assert read.entries("subscriptions_pkey") == 6  # once to check for instances, once for the rows
        assert all(read.scans(index) == 0 for index in others)
