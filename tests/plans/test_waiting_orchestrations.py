"""With a million waiting instances of orchestrations, an instance is found by its message or its timer alone."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from postroom.messagebox.orchestration_instances import ClaimedInstance, HostOrchestrations, JournalEntry
from tests.support.box import Box
from tests.support.databases import Databases
from tests.support.plans import Reads, reads

MILLION = 1_000_000
HOST = HostOrchestrations("Default")
SERVICE = uuid.uuid4()
DUE = datetime(2030, 1, 1, tzinfo=UTC)
TABLES = ("orchestration_instances", "orchestration_messages", "orchestration_journal", "default_q", "subscriptions")
INDEXES = (
    "orchestration_instances_pkey",
    "orchestration_instances_ready",
    "orchestration_instances_due",
    "orchestration_instances_claimed",
)

#: Each waits for a message, and has a timer for another second.
_WAITING = """
    INSERT INTO orchestration_instances (
           instance_id, host_id, service_id, priority, created_at, journal_length, wake_at)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 1, %(service)s, 5, now(), 1, %(due)s + n * interval '1 second'
      FROM generate_series(1, %(count)s) n
"""
_READY = """
    INSERT INTO orchestration_instances (instance_id, host_id, service_id, priority, created_at, ready_seq)
    SELECT gen_random_uuid(), 1, %(service)s, 7, now(), n FROM generate_series(1, %(count)s) n
"""
_MESSAGE = """
    WITH m AS (SELECT gen_random_uuid() AS id),
         p AS (INSERT INTO parts SELECT id, 'body', 'text/plain', NULL, 1, 'x' FROM m),
         s AS (INSERT INTO spool (message_id, part_ids, body_part_id, body_part_name, context)
               SELECT id, ARRAY[id], id, 'body', '{}' FROM m)
    INSERT INTO default_q (host_id, message_id, service_class, service_id, instance_id, priority, task)
    SELECT 1, id, 'orchestrations', %(service)s, %(instance)s, 5, 'join_instance' FROM m
"""


@pytest.fixture(scope="module")
def waiting(databases: Databases) -> Iterator[Box]:
    """Yield a box with a million waiting instances."""
    with databases.open_box() as box:
        # An index is built in less time than it is maintained.
        box.connection.execute(
            "UPDATE pg_index SET indisready = false WHERE indrelid = 'orchestration_instances'::regclass"
        )
        with box.connection.transaction():
            box.connection.execute("SET LOCAL session_replication_role = replica")  # no foreign key is checked
            box.connection.execute(_WAITING, {"service": SERVICE, "due": DUE, "count": MILLION})
        box.connection.execute("REINDEX TABLE orchestration_instances")
        box.connection.execute("ANALYZE orchestration_instances")
        yield box


def claim(box: Box, now: datetime) -> list[ClaimedInstance]:
    return HOST.claim(box.connection, claim_id=uuid.uuid4(), host_instance=1, limit=100, services=[SERVICE], now=now)


def assert_few_rows_were_read(read: Reads) -> None:
    """Row versions of rolled back transactions count too."""
    assert read.whole(*TABLES) == 0
    for index in INDEXES:
        assert read.entries(index) <= 100, index


def test_a_message_wakes_its_instance_and_no_other_is_read(waiting: Box) -> None:
    instance = waiting.one("SELECT instance_id FROM orchestration_instances OFFSET 1000 LIMIT 1")
    for _ in range(7):  # PostgreSQL may use a generic plan after the fifth execution
        with waiting.connection.transaction(force_rollback=True):
            waiting.connection.execute(_MESSAGE, {"service": SERVICE, "instance": instance})
            with reads(waiting.connection) as read:
                [claimed] = claim(waiting, DUE)
                [message] = HOST.read_messages(waiting.connection, claimed.claim_id)
                entry = JournalEntry(
                    claimed=claimed, journal_length=1, turns=[{}], consumed=[message.seq], is_released=True
                )
                stored, _ = HOST.persist(waiting.connection, [entry])
        assert stored == {claimed.instance_id} == {instance}
        assert_few_rows_were_read(read)


def test_a_timer_wakes_its_instance_and_no_other_is_read(waiting: Box) -> None:
    for _ in range(7):
        with waiting.connection.transaction(force_rollback=True), reads(waiting.connection) as read:
            assert len(claim(waiting, DUE + timedelta(seconds=3))) == 3
        assert_few_rows_were_read(read)


def test_a_poll_without_work_reads_no_instance(waiting: Box) -> None:
    for _ in range(7):
        with waiting.connection.transaction(force_rollback=True), reads(waiting.connection) as read:
            assert claim(waiting, DUE) == []
        assert_few_rows_were_read(read)


def test_a_claim_does_not_read_the_ready_instances_that_it_leaves(databases: Databases) -> None:
    with databases.open_box() as box:
        box.connection.execute("VACUUM ANALYZE orchestration_instances")  # when there is none
        box.connection.execute(_READY, {"service": SERVICE, "count": 2_000})
        for _ in range(7):
            with box.connection.transaction(force_rollback=True), reads(box.connection) as read:
                assert len(claim(box, DUE)) == 100
            assert read.whole(*TABLES) == 0
            assert read.entries("orchestration_instances_ready") <= 100
