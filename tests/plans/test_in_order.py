"""Dequeue in order finds the messages of an instance by index, and reads the queue in its order."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.support.box import Box
from tests.support.databases import Databases
from tests.support.plans import reads

INSTANCES, EACH = 400, 25

_QUEUED = """
    INSERT INTO work_queue (host_id, message_id, service_class, service_id, instance_id, priority, task)
    SELECT 1, gen_random_uuid(), 1, gen_random_uuid(), i.id, 5, 4
      FROM (SELECT gen_random_uuid() AS id FROM generate_series(1, %s)) i, generate_series(1, %s)
"""


@pytest.fixture(scope="module")
def many_joined(databases: Databases) -> Iterator[Box]:
    """Yield a box with 10,000 messages of 400 instances, and statistics of an empty queue."""
    with databases.open_box() as box:
        box.connection.execute("ANALYZE work_queue")
        box.connection.execute(_QUEUED, (INSTANCES, EACH))
        yield box


def test_dequeue_in_order_reads_no_table_whole(many_joined: Box) -> None:
    box = many_joined
    for _ in range(3):
        with box.connection.transaction(force_rollback=True), reads(box.connection) as read:
            claimed = box.connection.execute(
                "SELECT seq, instance_id FROM dequeue_in_order_default(%s, 1, 1::smallint, 100)", (uuid.uuid4(),)
            ).fetchall()
        assert len(claimed) == 100
        assert [seq for seq, _ in claimed] == sorted(seq for seq, _ in claimed)
        assert read.whole("default_q", "default_q_scheduled", "default_q_suspended", "spool", "parts") == 0


def test_an_instance_with_a_claimed_message_is_skipped(many_joined: Box) -> None:
    box = many_joined
    with box.connection.transaction(force_rollback=True):
        first, second = _claim_instances(box), _claim_instances(box)
    assert first
    assert second
    assert first.isdisjoint(second)


def _claim_instances(box: Box) -> set[uuid.UUID]:
    rows = box.connection.execute(
        "SELECT instance_id FROM dequeue_in_order_default(%s, 1, 1::smallint, 10)", (uuid.uuid4(),)
    )
    return {instance for (instance,) in rows}
