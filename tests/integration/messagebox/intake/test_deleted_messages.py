"""Completing a batch deletes the messages and parts that nothing else refers to, and keeps the others."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from postroom.adapters import SparkSink
from postroom.errors import LockTimeout
from postroom.messagebox.connection import Connection, connect, transaction
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.messagebox.sinks.sink_batches import SinkQueue
from tests.support.box import Box
from tests.support.reference_counts import COUNTS, STORED, count_rows
from tests.support.sinks import add_sink, publish, read_port_id

QUEUE = SinkQueue("Default")
TABLES = (*STORED, "default_q")


@pytest.fixture(autouse=True)
def lake(box: Box) -> None:
    add_sink(box, SparkSink("parquet", "lake"))


@pytest.fixture
def host(box: Box) -> Iterator[Connection]:
    with connect(box.url, user=box.host().role_name) as connection:
        yield connection


def complete(box: Box, connection: Connection, name: str = "Lake", *, limit: int = 1_000) -> int:
    """Complete the next batch of a sink without writing it. Return the number of messages."""
    return complete_batch(connection, read_port_id(box, name), limit=limit)


def complete_batch(connection: Connection, port_id: uuid.UUID, *, limit: int) -> int:
    batch = QUEUE.open_batch(connection, port_id, limit=limit)
    return 0 if batch is None else QUEUE.complete(connection, batch)


def test_a_completed_batch_leaves_only_large_bodies_to_the_cleanup(box: Box, host: Connection) -> None:
    publish(box, b"a", b"b")
    assert complete(box, host) == 2
    assert count_rows(box, *TABLES, *COUNTS) == {}
    publish(box, b"c", b"x" * 3_000_000)
    fragments = box.count("fragments")
    assert complete(box, host) == 2
    assert count_rows(box, *TABLES) == {"parts": 1, "fragments": fragments}
    assert check(box.connection) == []
    run_all_jobs_once(box.connection)
    assert count_rows(box, *TABLES, *COUNTS) == {}


def test_a_message_stays_until_the_last_of_two_sinks_has_completed_it(box: Box, host: Connection) -> None:
    add_sink(box, SparkSink("parquet", "lines"), name="Lines", filter='Orders.Region == "US"')
    publish(box, b"eu")
    publish(box, b"us", region="US")
    run_all_jobs_once(box.connection)
    assert complete(box, host) == 2
    assert count_rows(box, *TABLES) == {"spool": 1, "parts": 1, "default_q": 1}
    assert check(box.connection) == []
    run_all_jobs_once(box.connection)
    assert count_rows(box, *TABLES) == {"spool": 1, "parts": 1, "default_q": 1}
    assert complete(box, host, "Lines") == 1
    assert check(box.connection) == []
    run_all_jobs_once(box.connection)
    assert count_rows(box, *TABLES, *COUNTS) == {}


@pytest.mark.parametrize("folded", [True, False])
def test_a_message_stays_while_another_transaction_has_counted_a_reference(
    box: Box, host: Connection, folded: bool
) -> None:
    [message_id] = publish(box, b"a")
    add_reference(box, message_id)
    if folded:
        run_all_jobs_once(box.connection)
    assert complete(box, host, limit=1) == 1
    assert check(box.connection) == []
    run_all_jobs_once(box.connection)
    assert count_rows(box, *TABLES) == {"spool": 1, "parts": 1, "default_q": 1}
    assert complete(box, host) == 1
    run_all_jobs_once(box.connection)
    assert count_rows(box, *TABLES, *COUNTS) == {}


@pytest.mark.parametrize("folded", [True, False])
def test_a_part_stays_while_another_message_has_it(box: Box, host: Connection, folded: bool) -> None:
    [message_id] = publish(box, b"a")
    box.connection.execute("SELECT int_count_in_logs(ARRAY[%s::uuid])", (message_id,))
    copy_id = uuid.uuid4()
    box.connection.execute(
        "INSERT INTO spool (message_id, part_ids, body_part_id, body_part_name, context)"
        " SELECT %s, part_ids, body_part_id, body_part_name, context FROM spool WHERE message_id = %s",
        (copy_id, message_id),
    )
    add_reference(box, str(copy_id))
    if folded:
        run_all_jobs_once(box.connection)
    assert complete(box, host, limit=1) == 1
    assert check(box.connection) == []
    run_all_jobs_once(box.connection)
    assert box.one("SELECT message_id FROM spool") == copy_id
    assert box.count("parts") == 1
    assert complete(box, host) == 1
    run_all_jobs_once(box.connection)
    assert count_rows(box, *TABLES, *COUNTS) == {}


def test_a_host_cannot_delete_the_message_of_another_publisher(box: Box, host: Connection) -> None:
    """It queues a known message for its own sink, without counting the reference, and completes it."""
    other = box.add_host("Other")
    box.add_port("Slow", "exists(Orders.Region)", host="Other")
    [message_id] = publish(box, b"a")
    complete(box, host)
    run_all_jobs_once(box.connection)
    host.execute(
        "INSERT INTO default_q (host_id, message_id, service_class, service_id, instance_id, priority)"
        " VALUES (%s, %s, 'spark_sinks', %s, gen_random_uuid(), 5)",
        (box.host().host_id, message_id, read_port_id(box)),
    )
    assert complete(box, host) == 1
    run_all_jobs_once(box.connection)
    assert other.host_id != box.host().host_id
    assert count_rows(box, *TABLES) == {"spool": 1, "parts": 1}


def test_a_repair_waits_for_a_batch_that_is_being_completed(box: Box, host: Connection) -> None:
    publish(box, b"a")
    run_all_jobs_once(box.connection)
    with host.transaction():
        assert complete(box, host) == 1
        box.connection.execute("SET lock_timeout = '50ms'")
        with pytest.raises(LockTimeout):
            box.connection.execute("SELECT repair_ref_counts()")
    assert box.connection.execute("SELECT * FROM repair_ref_counts()").fetchall() == []


def test_counts_stay_correct_while_sinks_jobs_and_publishers_run_at_the_same_time(box: Box) -> None:
    add_sink(box, SparkSink("parquet", "lines"), name="Lines", filter='Orders.Region == "US"')
    role, published = box.host().role_name, threading.Event()

    def drain(name: str) -> int:
        total = 0
        with connect(box.url, user=role) as connection, connect(box.url) as administrator:
            port_id = read_port_id(Box(box.url, administrator), name)
            while (rows := complete_batch(connection, port_id, limit=7)) or not published.is_set():
                total += rows
        return total

    def run_jobs() -> None:
        with connect(box.url) as connection:
            while not published.is_set():
                run_all_jobs_once(connection)

    with ThreadPoolExecutor(3) as pool:
        drains = [pool.submit(drain, name) for name in ("Lake", "Lines")]
        jobs = pool.submit(run_jobs)
        try:
            for _ in range(60):
                publish(box, *(b"order" for _ in range(5)))
                publish(box, *(b"order" for _ in range(5)), region="US")
        finally:
            published.set()
        jobs.result()
    completed = [future.result() for future in drains]
    # What was published last may be left.
    completed[0] += complete(box, box.connection)
    completed[1] += complete(box, box.connection, "Lines")
    assert completed == [600, 300]
    assert check(box.connection) == []
    run_all_jobs_once(box.connection)
    assert count_rows(box, *TABLES, *COUNTS) == {}


def add_reference(box: Box, message_id: str) -> None:
    """Queue a stored message for the sink, and count the reference as a publisher does."""

    def work(connection: Connection) -> None:
        connection.execute("SELECT int_count_in_logs(ARRAY[%s::uuid])", (message_id,))
        connection.execute(
            "INSERT INTO default_q (host_id, message_id, service_class, service_id, instance_id, priority)"
            " VALUES (%s, %s, 'spark_sinks', %s, gen_random_uuid(), 5)",
            (box.host().host_id, message_id, read_port_id(box)),
        )
        active: dict[str, int] = dict(connection.execute("SELECT kind, active FROM active_ref_count_log").fetchall())
        connection.execute(
            f"INSERT INTO message_ref_count_log_{active['message']} VALUES (%s, 1)".encode(), (message_id,)
        )
        connection.execute(
            f"INSERT INTO part_ref_count_log_{active['part']} SELECT unnest(part_ids), 1 FROM spool"
            " WHERE message_id = %s".encode(),
            (message_id,),
        )

    transaction(box.connection, work)
