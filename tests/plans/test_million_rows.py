"""With a million messages in the queues, dequeue and publish read no table whole. Listings read each queue once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from postroom.message import Message
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.instances import InstanceQuery, InstanceState, get_instance, list_instances
from postroom.messagebox.queues import HostQueues
from postroom.operations.ports.send_ports import list_ports
from tests.support.box import Box, Region
from tests.support.databases import Databases
from tests.support.plans import reads

MILLION = 1_000_000
LIMIT = 100
QUEUES = HostQueues("Default")
_TABLES = ("spool", "parts", "default_q", "default_q_suspended")

_MESSAGES = """
    WITH m AS MATERIALIZED (SELECT gen_random_uuid() AS id FROM generate_series(1, %(count)s)),
         p AS (INSERT INTO parts SELECT id, 'body', 'text/plain', NULL, 1, 'x' FROM m)
    INSERT INTO spool (message_id, part_ids, body_part_id, body_part_name, context)
    SELECT id, ARRAY[id], id, 'body', '{}' FROM m
"""
_QUEUED = """
    INSERT INTO default_q (host_id, message_id, service_class, service_id, instance_id, priority)
    SELECT 1, message_id, 'messaging_in_process', %(port)s, message_id, 5 FROM spool
"""
_SUSPENDED = """
    INSERT INTO default_q_suspended (host_id, message_id, service_class, service_id, instance_id, priority, cause,
                                     error_code, error_description)
    SELECT 1, message_id, 'messaging_in_process', %(port)s, message_id, 5, 'failure', 'DELIVERY',
           'The receiver is down.' FROM spool
"""


@pytest.fixture(scope="module")
def large(databases: Databases) -> Iterator[Box]:
    """Yield a box with a million messages, each in the work queue and in the suspended queue of one port."""
    with databases.open_box() as box:
        box.add_port("Europe", "Orders.Region == 'EU'")
        port = box.one("SELECT id FROM send_ports")
        # Without the WAL, and with indexes that are built afterwards, the rows are written in half the time.
        box.connection.execute("SET maintenance_work_mem = '256MB'")
        for table in _TABLES:
            box.connection.execute(f"ALTER TABLE {table} SET UNLOGGED")
        box.connection.execute(
            "UPDATE pg_index SET indisready = false WHERE indrelid = ANY (%s::regclass[])", (list(_TABLES),)
        )
        for statement in (_MESSAGES, _QUEUED, _SUSPENDED):
            box.connection.execute(statement, {"count": MILLION, "port": port})
        for table in _TABLES:
            box.connection.execute(f"REINDEX TABLE {table}")
        box.connection.execute("ANALYZE spool, parts, default_q, default_q_suspended")
        yield box


def test_a_dequeue_and_its_completion_read_the_claimed_messages_only(large: Box) -> None:
    for _ in range(7):  # PostgreSQL may use a generic plan after the fifth execution
        with large.connection.transaction(force_rollback=True), reads(large.connection) as read:
            claim_id = uuid.uuid4()
            claimed = QUEUES.dequeue(
                large.connection,
                claim_id=claim_id,
                host_instance=1,
                service_class=ServiceClass.MESSAGING_IN_PROCESS,
                limit=LIMIT,
            )
            assert QUEUES.complete(large.connection, claim_id, [message.seq for message in claimed]) == LIMIT
        assert read.whole(*_TABLES) == 0
        assert read.entries("default_q_service_class_priority_seq_idx") <= 2 * LIMIT
        # Once for the claim, and twice for the release: the row that may count its only reference, and its parts.
        assert read.entries("spool_pkey") <= 3 * LIMIT
        assert read.entries("parts_pkey") <= 2 * LIMIT


@pytest.mark.parametrize("count", [1, 50], ids=["one message", "a batch"])
def test_a_publish_reads_no_queue_and_no_message(large: Box, count: int) -> None:
    agent = large.agent()
    for _ in range(7):
        with large.connection.transaction(force_rollback=True), reads(large.connection) as read:
            agent.publish([Message.of(b"1", promoted={Region: "EU"}) for _ in range(count)])
        assert read.whole(*_TABLES) == 0
        assert read.entries("spool_pkey") <= count


def test_a_suspended_instance_is_found_by_its_id(large: Box) -> None:
    [(instance_id,)] = large.connection.execute("SELECT instance_id FROM suspended_queue LIMIT 1").fetchall()
    with large.connection.transaction(force_rollback=True), reads(large.connection) as read:
        assert get_instance(large.connection, instance_id).instance_id == instance_id
    assert read.whole("default_q_suspended", "spool", "parts") == 0


def test_the_latest_suspended_instances_are_listed_by_their_index(large: Box) -> None:
    for query in (InstanceQuery(limit=20), InstanceQuery(port="Europe", error_code="DELIVERY", limit=20)):
        suspended = replace(query, states=[InstanceState.SUSPENDED, InstanceState.SUSPENDED_NOT_RESUMABLE])
        with large.connection.transaction(force_rollback=True), reads(large.connection) as read:
            assert len(list_instances(large.connection, suspended)) == 20
        assert read.whole(*_TABLES) == 0
        assert read.entries("default_q_suspended_seq_idx") == 20


def test_a_listing_of_all_states_reads_the_work_queue_once_and_no_message(large: Box) -> None:
    with large.connection.transaction(force_rollback=True), reads(large.connection) as read:
        assert len(list_instances(large.connection, InstanceQuery(port="Europe", limit=20))) == 20
    assert (read.whole("default_q"), read.whole("default_q_suspended"), read.whole("spool", "parts")) == (1, 0, 0)
    assert read.entries("default_q_suspended_seq_idx") <= 21


def test_a_listing_of_ports_reads_each_queue_once_and_no_message(large: Box) -> None:
    with large.connection.transaction(force_rollback=True), reads(large.connection) as read:
        [listing] = list_ports(large.connection)
    assert (listing.waiting, listing.suspended) == (MILLION, MILLION)
    assert (read.whole("default_q"), read.whole("default_q_suspended"), read.whole("spool", "parts")) == (1, 1, 0)
