"""The procedures that run for every batch use their indexes, independent of the length of the queues.

The procedures themselves are measured: inside a transaction PostgreSQL counts the sequential scans of each table and
the entries that each index returned.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta

import pytest

from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.queues import ClaimedMessage, HostQueues, ScheduledRetry, Suspension
from tests.support.box import Box
from tests.support.databases import Databases
from tests.support.plans import reads

MANY = 30_000
LIMIT = 100
QUEUES = HostQueues("Default")

_FILL = """
    WITH m AS MATERIALIZED (SELECT gen_random_uuid() AS id, n FROM generate_series(1, %(count)s) n),
         s AS (INSERT INTO spool (message_id, part_ids, body_part_id, body_part_name, context)
               SELECT id, ARRAY[id], id, 'body', '{}' FROM m),
         p AS (INSERT INTO parts SELECT id, 'body', 'text/plain', NULL, 1, 'x' FROM m)
    INSERT INTO default_q (host_id, message_id, service_class, service_id, instance_id, priority, claim_id, claimed_by)
    SELECT 1, id, 'messaging_in_process', gen_random_uuid(), id, 1 + n %% 10,
           CASE WHEN %(claimed)s THEN gen_random_uuid() END, 1 FROM m
"""
_TIDY = "VACUUM ANALYZE spool, parts, default_q"

CLAIMED, UNCLAIMED, STALE = "the others are claimed", "nothing is claimed", "statistics are of an empty queue"

_NOTHING = (None, None, None, None, None, None, None, None, None)


@pytest.fixture(scope="module", params=[CLAIMED, UNCLAIMED, STALE])
def full(request: pytest.FixtureRequest, databases: Databases) -> Iterator[Box]:
    """Yield a box with a work queue of 30,000 rows, and 1,000 unclaimed rows after them."""
    with databases.open_box() as box:
        if request.param == STALE:
            box.connection.execute(_TIDY)
            box.connection.execute("ALTER TABLE default_q SET (autovacuum_enabled = off)")
        box.connection.execute(_FILL, {"count": MANY, "claimed": request.param == CLAIMED})
        box.connection.execute(_FILL, {"count": 1000, "claimed": False})
        if request.param != STALE:
            box.connection.execute(_TIDY)
        yield box


def claim(box: Box, limit: int = LIMIT) -> tuple[uuid.UUID, list[int]]:
    claim_id = uuid.uuid4()
    rows = QUEUES.dequeue(
        box.connection, claim_id=claim_id, host_instance=1, service_class=ServiceClass.MESSAGING_IN_PROCESS, limit=limit
    )
    assert len(rows) == limit
    return claim_id, [row.seq for row in rows]


def test_dequeue_scans_the_index_of_unclaimed_rows(full: Box) -> None:
    for _ in range(8):  # PostgreSQL may use a generic plan after the fifth execution
        with full.connection.transaction(force_rollback=True), reads(full.connection) as read:
            claim(full)
        assert read.whole("default_q", "spool", "parts") == 0
        assert read.entries("default_q_service_class_priority_seq_idx") <= 2 * LIMIT
        assert read.entries("spool_pkey") == read.entries("parts_pkey") == LIMIT, "one lookup per message, no scan"


def test_dequeue_does_not_scan_claimed_rows(full: Box) -> None:
    with full.connection.transaction(force_rollback=True):
        for _ in range(5):
            with reads(full.connection) as read:
                claim(full)
            assert read.whole("default_q", "spool", "parts") == 0
            # Index entries of rows that this transaction has claimed still exist. Only these may be read in addition.
            assert read.entries("default_q_service_class_priority_seq_idx") <= 6 * LIMIT


def test_dequeue_starts_after_the_rows_that_were_claimed_before(full: Box) -> None:
    """Index entries of rows that were claimed after the oldest snapshot still exist. Here that is this transaction."""
    with full.connection.transaction(force_rollback=True):
        queued = "FROM default_q WHERE claim_id IS NULL ORDER BY priority, seq LIMIT 1"
        for _ in range(8):
            claim(full)
        priority, seq = full.one(f"SELECT priority {queued}"), full.one(f"SELECT seq {queued}")
        with reads(full.connection) as read:
            claimed = QUEUES.dequeue(
                full.connection,
                claim_id=uuid.uuid4(),
                host_instance=1,
                service_class=ServiceClass.MESSAGING_IN_PROCESS,
                limit=5,
                starts={priority: seq} | dict.fromkeys(range(1, priority), 2**62),
            )
        assert (claimed[0].priority, claimed[0].seq) == (priority, seq)
        assert len(claimed) == 5
        assert read.whole("default_q", "spool", "parts") == 0
        assert read.entries("default_q_service_class_priority_seq_idx") <= 10


def test_dequeue_looks_at_all_rows_if_too_few_follow_the_start(full: Box) -> None:
    with full.connection.transaction(force_rollback=True):
        starts = dict.fromkeys(range(1, 11), 2**62)
        claimed = QUEUES.dequeue(
            full.connection,
            claim_id=uuid.uuid4(),
            host_instance=1,
            service_class=ServiceClass.MESSAGING_IN_PROCESS,
            limit=LIMIT,
            starts=starts,
        )
        assert len(claimed) == LIMIT


@pytest.mark.parametrize("outcome", ["complete", "retry", "suspend", "release", "parts", "fragments"])
def test_outcomes_find_their_rows_by_the_claim(full: Box, outcome: str) -> None:
    for _ in range(8):
        with full.connection.transaction(force_rollback=True):
            claim_id, seqs = claim(full)
            message_id = full.one(
                "SELECT message_id FROM default_q WHERE claim_id = %s AND seq = %s", claim_id, seqs[0]
            )
            claimed = ClaimedMessage(claim_id, 0, seqs[0], message_id, None, message_id, "deliver", 0, *_NOTHING)
            with reads(full.connection) as read:
                match outcome:
                    case "complete":
                        assert QUEUES.complete(full.connection, claim_id, seqs) == LIMIT
                    case "retry":
                        retry = ScheduledRetry(delay=timedelta(minutes=1), code="X", description="x")
                        assert QUEUES.retry(full.connection, claim_id, dict.fromkeys(seqs, retry)) == LIMIT
                    case "suspend":
                        suspension = Suspension(code="X", description="x")
                        assert QUEUES.suspend(full.connection, claim_id, dict.fromkeys(seqs, suspension)) == LIMIT
                    case "release":
                        assert QUEUES.release(full.connection, claim_id, seqs) == LIMIT
                    case "parts":
                        assert len(QUEUES.read_parts(full.connection, claimed)) == 1
                    case "fragments":
                        assert QUEUES.read_fragments(full.connection, claimed, message_id, start=0, count=10) == []
        assert read.whole("default_q", "spool", "parts", "fragments") == 0
        assert read.entries("default_q_claim_id_seq_idx") <= 2 * LIMIT
