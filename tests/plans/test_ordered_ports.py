"""A claim for ordered send ports reads the first messages of each port, however many messages wait behind them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.queues import HostQueues
from tests.support.box import Box
from tests.support.databases import Databases
from tests.support.plans import reads

QUEUES = HostQueues("Default")
PORTS, EACH, AHEAD = 40, 500, 5
#: Ports whose first message waits for a retry, is suspended, or is claimed.
BLOCKED = 3

_QUEUED = """
    INSERT INTO work_queue (host_id, message_id, service_class, service_id, instance_id, priority, task)
    SELECT 1, gen_random_uuid(), 'messaging_in_process', p.id, p.id, 5, 'deliver_in_order'
      FROM unnest(%s::uuid[]) WITH ORDINALITY p (id, number), generate_series(1, %s) n ORDER BY n, p.number
"""
_MOVED = """
    WITH first_row AS (
        DELETE FROM work_queue WHERE instance_id = %s AND seq = (SELECT min(seq) FROM work_queue WHERE instance_id = %s)
        RETURNING seq, host_id, message_id, service_class, service_id, instance_id, priority, task, enqueued_at)
"""
_SCHEDULED = f"""{_MOVED}
    INSERT INTO scheduled_queue (seq, host_id, message_id, service_class, service_id, instance_id, priority, task,
                                 enqueued_at, attempt, valid_from)
    SELECT *, 1, 'infinity' FROM first_row
"""
_SUSPENDED = f"""{_MOVED}
    INSERT INTO suspended_queue (seq, host_id, message_id, service_class, service_id, instance_id, priority, task,
                                 enqueued_at, cause, error_code, error_description)
    SELECT *, 'failure', 'X', '' FROM first_row
"""
_CLAIMED = """
    UPDATE work_queue SET claim_id = gen_random_uuid(), claimed_by = 1
     WHERE instance_id = %s AND seq = (SELECT min(seq) FROM work_queue WHERE instance_id = %s)
"""


@pytest.fixture(scope="module")
def backlog(databases: Databases) -> Iterator[tuple[Box, list[uuid.UUID]]]:
    """Yield a box with 20,000 messages of 40 ordered ports, three of which are blocked, and stale statistics."""
    ports = [uuid.uuid4() for _ in range(PORTS)]
    with databases.open_box() as box:
        box.connection.execute("ANALYZE work_queue, scheduled_queue, suspended_queue")
        box.connection.execute(_QUEUED, (ports, EACH))
        for statement, port in zip((_SCHEDULED, _SUSPENDED, _CLAIMED), ports, strict=False):
            box.connection.execute(statement, (port, port))
        yield box, ports


def test_a_claim_reads_only_the_first_messages_of_each_port(backlog: tuple[Box, list[uuid.UUID]]) -> None:
    box, ports = backlog
    for _ in range(7):
        with box.connection.transaction(force_rollback=True), reads(box.connection) as read:
            claimed = QUEUES.dequeue(
                box.connection,
                claim_id=uuid.uuid4(),
                host_instance=1,
                service_class=ServiceClass.MESSAGING_IN_PROCESS,
                limit=1000,
                ahead=AHEAD,
            )
        assert {message.instance_id for message in claimed} == set(ports[BLOCKED:])
        assert len(claimed) == (PORTS - BLOCKED) * AHEAD
        assert [message.seq for message in claimed] == sorted(message.seq for message in claimed)
        assert read.whole("default_q", "default_q_scheduled", "default_q_suspended", "spool", "parts") == 0
        assert read.entries("default_q_instance_id_seq_idx") <= 20 * PORTS
        assert read.entries("default_q_service_class_priority_seq_idx") == 0, "other messages are in this index"


def test_blocked_messages_are_not_in_the_way_of_other_ports(backlog: tuple[Box, list[uuid.UUID]]) -> None:
    box, _ = backlog
    with box.connection.transaction(force_rollback=True):
        box.connection.execute("DELETE FROM work_queue WHERE instance_id <> ALL (%s)", (backlog[1][:BLOCKED],))
        with reads(box.connection) as read:
            box.connection.execute(
                "INSERT INTO work_queue (host_id, message_id, service_class, service_id, instance_id, priority)"
                " VALUES (1, gen_random_uuid(), 'messaging_in_process', gen_random_uuid(), gen_random_uuid(), 5)"
            )
            claimed = QUEUES.dequeue(
                box.connection,
                claim_id=uuid.uuid4(),
                host_instance=1,
                service_class=ServiceClass.MESSAGING_IN_PROCESS,
                limit=100,
            )
        assert len(claimed) == 1
        assert read.entries("default_q_service_class_priority_seq_idx") <= 2
