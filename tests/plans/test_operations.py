"""Operations on instances read the work queue whole, and look each row up in a hash table of the chosen instances."""

from __future__ import annotations

import uuid

import psutil
import pytest

from tests.support.box import Box

ROWS, PIECE = 20_000, 2_000

_QUEUED = """
    INSERT INTO default_q (host_id, message_id, service_class, service_id, instance_id, priority)
    SELECT 1, gen_random_uuid(), 'messaging_in_process', %(port)s, gen_random_uuid(), 5
      FROM generate_series(1, %(count)s)
"""


@pytest.mark.parametrize("operation", ["suspend_instances", "terminate_instances"])
def test_a_piece_does_not_compare_each_row_with_every_instance(box: Box, operation: str) -> None:
    """PostgreSQL has no hash table of an array in a generic plan, which it may use after the fifth execution."""
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.connection.execute(_QUEUED, {"port": box.one("SELECT id FROM send_ports"), "count": ROWS})
    box.connection.execute("ANALYZE default_q")
    chosen = [
        row for (row,) in box.connection.execute("SELECT instance_id FROM work_queue ORDER BY seq LIMIT %s", [PIECE])
    ]
    custom = measure(box, operation, chosen, "force_custom_plan")
    generic = measure(box, operation, chosen, "force_generic_plan")
    assert generic < 5 * custom


def measure(box: Box, operation: str, chosen: list[uuid.UUID], mode: str) -> float:
    """Return the CPU time that the session of the box takes for a piece, if PostgreSQL prefers such plans."""
    session = psutil.Process(box.one("SELECT pg_backend_pid()"))
    with box.connection.transaction(force_rollback=True):
        box.connection.execute(f"SET LOCAL plan_cache_mode = {mode}")
        before = float(session.cpu_times().user)
        for _ in range(3):
            with box.connection.transaction(force_rollback=True):
                assert box.one(f"SELECT count(*) FROM {operation}(%s)", chosen) == PIECE
    return max(float(session.cpu_times().user) - before, 0.05)
