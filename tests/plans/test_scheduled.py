"""Messages that are not due yet cost nothing."""

from __future__ import annotations

import pytest

from tests.support.box import Box
from tests.support.plans import reads

MANY = 30_000


@pytest.mark.parametrize("statistics", ["fresh", "stale"])
def test_due_messages_are_found_by_index(box: Box, statistics: str) -> None:
    _schedule(box, statistics)
    for _ in range(8):
        with box.connection.transaction(force_rollback=True), reads(box.connection) as read:
            released = box.one("SELECT release_due_default(1000)")
            assert released >= 50
        assert read.whole("default_q_scheduled") == 0
        assert read.entries("default_q_scheduled_valid_from_idx") <= 2 * released


def _schedule(box: Box, statistics: str) -> None:
    box.connection.execute("ALTER TABLE default_q_scheduled SET (autovacuum_enabled = off)")
    box.connection.execute("VACUUM ANALYZE default_q_scheduled")
    box.connection.execute(
        "INSERT INTO default_q_scheduled (seq, host_id, message_id, service_class, instance_id, priority, enqueued_at,"
        " valid_from) SELECT n, 1, gen_random_uuid(), 4, gen_random_uuid(), 5, now(), now() + n * interval '1 s'"
        " FROM generate_series(-49, %s) n",
        (MANY,),
    )
    if statistics == "fresh":
        box.connection.execute("ANALYZE default_q_scheduled")
