"""A sink finds its messages by index, independent of the messages for ports and other sinks."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.sinks.sink_batches import SeqRange, SinkQueue
from tests.support.box import Box
from tests.support.databases import Databases
from tests.support.plans import reads

MANY = 20_000
SINK, OTHER, PORT = uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=3)
QUEUE = SinkQueue("Default")

_FILL = """
    INSERT INTO default_q (host_id, message_id, service_class, service_id, instance_id, priority)
    SELECT 1, gen_random_uuid(), %s, %s, gen_random_uuid(), 5 FROM generate_series(1, %s)
"""


@pytest.fixture(scope="module", params=["current statistics", "statistics of an empty queue"])
def full(request: pytest.FixtureRequest, databases: Databases) -> Iterator[Box]:
    with databases.open_box() as box:
        box.connection.execute("ALTER TABLE default_q SET (autovacuum_enabled = off)")
        for service_class, service, count in (
            (ServiceClass.MESSAGING_IN_PROCESS, PORT, MANY),
            (ServiceClass.SPARK_SINKS, OTHER, MANY),
            (ServiceClass.SPARK_SINKS, SINK, 1000),
        ):
            box.connection.execute(_FILL, (service_class, service, count))
        if request.param == "current statistics":
            box.connection.execute("VACUUM ANALYZE default_q")
        yield box


def test_opening_a_batch_uses_the_index_of_the_sink(full: Box) -> None:
    for _ in range(7):  # PostgreSQL may use a generic plan after the fifth execution
        with full.connection.transaction(force_rollback=True), reads(full.connection) as read:
            batch = QUEUE.open_batch(full.connection, SINK, limit=100)
            assert batch is not None
            assert len(batch.seqs) == 100
        assert read.whole("default_q") == 0
        assert read.entries("default_q_service_id_priority_seq_idx") <= 101


def test_reading_a_range_of_a_batch_reads_the_index_of_claims_in_this_range_only(full: Box) -> None:
    with full.connection.transaction(force_rollback=True):
        batch = QUEUE.open_batch(full.connection, SINK, limit=500)
        assert batch is not None
        seqs = SeqRange(batch.seqs[100], batch.seqs[299])
        for _ in range(7):
            with reads(full.connection) as read:
                assert len(QUEUE.read_rows(full.connection, batch.batch_id, 1, seqs).seqs) == 200
            assert read.whole("default_q", "spool", "parts") == 0
            assert read.entries("default_q_claim_id_seq_idx") <= 201
            with reads(full.connection) as read:
                assert len(QUEUE.read_messages(full.connection, batch.batch_id, 1, seqs, limit=50)) == 50
            assert read.whole("default_q", "spool", "parts") == 0
            assert read.entries("default_q_claim_id_seq_idx") <= 51 + 50  # the rows, and then the rest of each message


def test_finding_the_waiting_sinks_takes_one_lookup_per_sink(full: Box) -> None:
    with full.connection.transaction(force_rollback=True), reads(full.connection) as read:
        assert QUEUE.find_waiting_ports(full.connection) == {SINK, OTHER}
    assert read.whole("default_q") == 0
    assert read.entries("default_q_service_id_priority_seq_idx") <= 10


_STORE = """
    WITH m AS MATERIALIZED (SELECT gen_random_uuid() AS id FROM generate_series(1, %(count)s)),
         s AS (INSERT INTO spool (message_id, part_ids, context, only_reference)
               SELECT id, ARRAY[id], '{}', %(only_reference)s FROM m),
         p AS (INSERT INTO parts (part_id, name, content_type, size, body, only_reference)
               SELECT id, 'body', 'text/plain', 1, 'x', %(only_reference)s FROM m)
    INSERT INTO default_q (host_id, message_id, service_class, service_id, instance_id, priority)
    SELECT 1, id, 'spark_sinks', %(service)s, id, 5 FROM m
"""


@pytest.mark.parametrize("analyzed", [True, False])
@pytest.mark.parametrize("only_reference", [True, False])
def test_completing_a_batch_looks_up_its_messages(box: Box, analyzed: bool, only_reference: bool) -> None:
    kinds = {"message": "spool", "part": "parts"}
    for table in ("default_q", *kinds.values()):
        box.connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    box.connection.execute("VACUUM ANALYZE")
    for service in (SINK, OTHER):
        box.connection.execute(_STORE, {"count": MANY, "service": service, "only_reference": only_reference})
    if analyzed:
        box.connection.execute("VACUUM ANALYZE")
    for _ in range(7):  # PostgreSQL may use a generic plan after the fifth execution
        with box.connection.transaction(), reads(box.connection) as read:
            batch = QUEUE.open_batch(box.connection, SINK, limit=200)
            assert batch is not None
            assert QUEUE.complete(box.connection, batch) == 200
        for kind, table in kinds.items():
            assert read.whole(f"{kind}_ref_count_log_1", f"{kind}_ref_count_log_2", "default_q", table) == 0
            assert read.entries(f"{table}_pkey") <= 400
    assert box.count("messages") == box.count("parts") == 2 * MANY - (7 * 200 if only_reference else 0)
    assert (
        box.count_rows("message_ref_count_log_1")
        == box.count_rows("part_ref_count_log_1")
        == (0 if only_reference else 1400)
    )


def test_the_search_for_dead_host_instances_skips_the_rows_of_a_batch(box: Box) -> None:
    box.connection.execute(_FILL, (ServiceClass.SPARK_SINKS, SINK, 1_000))
    assert QUEUE.open_batch(box.connection, SINK, limit=1_000) is not None
    with box.connection.transaction(), reads(box.connection) as read:
        assert box.one("SELECT dead_processes_cleanup()") == 0
    assert read.whole("default_q") == 0
    assert read.entries("default_q_claim_id_seq_idx") <= 2
