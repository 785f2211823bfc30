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


def test_messages_of_a_paused_port_cost_a_dequeue_nothing(box: Box) -> None:
    """They wait for an open circuit breaker. Probes, and the parts after it is closed, are found by index."""
    box.add_port("Paused")
    box.connection.execute("ALTER TABLE default_q_scheduled SET (autovacuum_enabled = off)")
    box.connection.execute(
        "INSERT INTO default_q_scheduled (seq, host_id, message_id, service_class, service_id, instance_id, priority,"
        " enqueued_at, valid_from, state, paused) SELECT n, 1, gen_random_uuid(), 'messaging_in_process', p.id,"
        " gen_random_uuid(), 5, now(), 'infinity', 'scheduled', true FROM send_ports p, generate_series(1, %s) n",
        (MANY,),
    )
    box.connection.execute(
        "INSERT INTO open_circuits (port_id, host_id, opened_by, reason, probe_interval, next_probe_at)"
        " SELECT id, 1, '', '', '1 hour', now() FROM send_ports"
    )
    for probe in range(1, 4):
        box.connection.execute("UPDATE open_circuits SET next_probe_at = now()")
        with box.connection.transaction(), reads(box.connection) as read:
            assert box.one("SELECT release_due_default(1000)") == 1
        assert read.whole("default_q_scheduled") == 0
        assert read.entries("default_q_scheduled_service_id_seq_idx") <= 2 * probe + 2
        assert box.one("SELECT probe_seq FROM open_circuits") == probe
        assert box.one("SELECT release_due_default(1000)") == 0, "the next probe is not due"
    box.connection.execute("UPDATE open_circuits SET closed_at = now()")
    released = 0
    while box.count("open circuits"):
        with box.connection.transaction(), reads(box.connection) as read:
            part = box.one("SELECT release_due_default(10000)")
        assert part <= 5_000
        assert read.whole("default_q_scheduled") == 0
        released += part
    assert released == MANY - 3
    assert box.count_rows("default_q_scheduled") == 0


def _schedule(box: Box, statistics: str) -> None:
    box.connection.execute("ALTER TABLE default_q_scheduled SET (autovacuum_enabled = off)")
    box.connection.execute("VACUUM ANALYZE default_q_scheduled")
    box.connection.execute(
        "INSERT INTO default_q_scheduled (seq, host_id, message_id, service_class, instance_id, priority, enqueued_at,"
        " valid_from) SELECT n, 1, gen_random_uuid(), 'messaging_in_process', gen_random_uuid(), 5, now(),"
        " now() + n * interval '1 s'"
        " FROM generate_series(-49, %s) n",
        (MANY,),
    )
    if statistics == "fresh":
        box.connection.execute("ANALYZE default_q_scheduled")
