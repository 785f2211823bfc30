"""The batches of a sink in the MessageBox are fixed before they are written, and completed once."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import timedelta

import pytest

from postroom.adapters import SparkSink
from postroom.errors import ClaimLost, NotAllowed
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.queues import HostQueues, ScheduledRetry, Suspension
from postroom.messagebox.sinks.sink_batches import CHUNK_BYTES, SeqRange, SinkBatch, SinkQueue
from postroom.operations.ports import send_ports as ports
from tests.support import changes as instance_changes
from tests.support.box import Box, Region
from tests.support.contents import Contents
from tests.support.sinks import add_sink, publish

QUEUE = SinkQueue("Default")


@pytest.fixture
def port_id(box: Box) -> uuid.UUID:
    add_sink(box, SparkSink("parquet", "lake"))
    port: uuid.UUID = box.port("Lake").port_id
    return port


@pytest.fixture
def host(box: Box) -> Iterator[Connection]:
    with connect(box.url, user=box.host().role_name) as connection:
        yield connection


def span(batch: SinkBatch) -> SeqRange:
    """Return the range of all messages of a batch."""
    return SeqRange(batch.seqs[0], batch.seqs[-1])


def test_hosts_do_not_dequeue_the_messages_of_sinks(box: Box, port_id: uuid.UUID) -> None:
    publish(box, b"a")
    queues = HostQueues("Default")
    dequeue = {"claim_id": uuid.uuid4(), "host_instance": 1, "limit": 10}
    assert queues.dequeue(box.connection, service_class=ServiceClass.MESSAGING_IN_PROCESS, **dequeue) == []  # type: ignore[arg-type]
    assert QUEUE.find_waiting_ports(box.connection) == {port_id}


def test_a_batch_is_the_same_at_every_attempt(box: Box, port_id: uuid.UUID, host: Connection) -> None:
    ids = publish(box, b"a", b"bb", b"ccc")
    first = QUEUE.open_batch(host, port_id, limit=2, sink={"path": "lake"})
    assert first is not None
    assert (first.attempt, first.tries, first.sink) == (1, (0, 0), {"path": "lake"})
    again = QUEUE.open_batch(host, port_id, limit=100)
    assert again is not None
    assert (again.batch_id, again.number, again.seqs, again.attempt) == (first.batch_id, first.number, first.seqs, 2)
    assert again.sink == first.sink
    read = QUEUE.read_messages(host, again.batch_id, 2, span(again))
    assert [str(message.claimed.message_id) for message in read] == ids[:2]
    assert [message.claimed.body for message in read] == [b"a", b"bb"]
    for late in (
        lambda: QUEUE.read_messages(host, first.batch_id, 1, span(first)),
        lambda: QUEUE.read_rows(host, first.batch_id, 1, span(first)),
        lambda: QUEUE.complete(host, first),
        lambda: QUEUE.fail(host, first, {}, {}),
    ):
        with pytest.raises(ClaimLost):
            late()
    assert QUEUE.complete(host, again) == 2
    with pytest.raises(ClaimLost):
        QUEUE.complete(host, again)
    third = QUEUE.open_batch(host, port_id, limit=100)
    assert third is not None
    assert third.number > first.number
    assert QUEUE.complete(host, third) == 1
    assert QUEUE.open_batch(host, port_id, limit=100) is None
    assert check(box.connection) == []


def test_a_chunk_of_a_batch_is_limited_by_number_and_by_bytes(box: Box, port_id: uuid.UUID, host: Connection) -> None:
    """A large message is read alone, so that it is the only one in memory."""
    sizes = (10, CHUNK_BYTES // 2, CHUNK_BYTES // 2, 10, CHUNK_BYTES + 1, 10)
    publish(box, *(b"x" * size for size in sizes))
    batch = QUEUE.open_batch(host, port_id, limit=10)
    assert batch is not None
    first, last = span(batch)
    chunks: list[list[int]] = []
    while first <= last:
        rows = QUEUE.read_rows(host, batch.batch_id, 1, SeqRange(first, last))
        messages = QUEUE.read_messages(host, batch.batch_id, 1, SeqRange(first, last))
        assert list(rows.seqs) == [message.claimed.seq for message in messages]
        chunks.append(list(map(batch.seqs.index, rows.seqs)))
        first = rows.seqs[-1] + 1
    assert chunks == [[0, 1], [2, 3], [4], [5]]
    assert list(QUEUE.read_rows(host, batch.batch_id, 1, span(batch), limit=1).seqs) == [batch.seqs[0]]


def test_line_breaks_and_missing_messages_do_not_shift_the_rows(box: Box, port_id: uuid.UUID, host: Connection) -> None:
    ids = [*publish(box, b"a", region="E\nU,"), *publish(box, b"b"), *publish(box, b"c", region="US")]
    box.delete_message(uuid.UUID(ids[1]))
    batch = QUEUE.open_batch(host, port_id, limit=10)
    assert batch is not None
    rows = QUEUE.read_rows(host, batch.batch_id, 1, span(batch))
    assert (list(rows.seqs), list(rows.message_ids)) == (list(batch.seqs), ids)
    regions = [json.loads(context)["promoted"][Region.key] if context else None for context in rows.contexts]
    assert regions == ["E\nU,", None, "US"]
    assert list(rows.bodies) == [b"a", None, b"c"]
    assert list(QUEUE.read_rows(host, batch.batch_id, 1, span(batch), with_body=False).bodies) == [None] * 3
    messages = [message.claimed for message in QUEUE.read_messages(host, batch.batch_id, 1, span(batch))]
    assert [(message.message_id, message.context is None) for message in messages] == [
        *((uuid.UUID(message_id), message_id == ids[1]) for message_id in ids)
    ]
    assert [is_simple is True for is_simple in rows.is_simple] == [True, False, True]
    assert all(isinstance(moment, int) for moment in (rows.published_at[0], rows.published_at[2]))


def test_a_range_whose_messages_have_left_the_batch_has_no_rows(box: Box, port_id: uuid.UUID, host: Connection) -> None:
    publish(box, b"a", b"b")
    batch = QUEUE.open_batch(host, port_id, limit=10)
    assert batch is not None
    QUEUE.queues.suspend(host, batch.batch_id, {batch.seqs[0]: Suspension(code="X", description="it is bad")})
    first = SeqRange(batch.seqs[0], batch.seqs[0])
    assert QUEUE.read_rows(host, batch.batch_id, 1, first).seqs == ()
    assert QUEUE.read_messages(host, batch.batch_id, 1, first) == []


def test_a_batch_outlives_the_process_that_opened_it(box: Box, port_id: uuid.UUID) -> None:
    publish(box, b"a")
    opened = QUEUE.open_batch(box.connection, port_id, limit=10)
    assert opened is not None
    box.connection.execute("SELECT dead_processes_cleanup()")
    # No message is removed from it, because it may have been written.
    instance = box.queued_rows()[0].instance_id
    for function in ("suspend_instances", "terminate_instances"):
        assert box.one(f"SELECT {function}(ARRAY[%s::uuid])", instance) is None
    ports.unenlist(box.connection, "Lake")
    assert check(box.connection) == []
    again = QUEUE.open_batch(box.connection, port_id, limit=10)
    assert again is not None
    assert (again.batch_id, again.seqs) == (opened.batch_id, opened.seqs)


def test_a_failed_batch_is_retried_or_suspended(box: Box, port_id: uuid.UUID, host: Connection) -> None:
    publish(box, b"a", b"b")
    batch = QUEUE.open_batch(host, port_id, limit=10)
    assert batch is not None
    retry = ScheduledRetry(delay=timedelta(), code="DELIVERY", description="away")
    suspension = Suspension(code="DELIVERY", description="away")
    assert QUEUE.fail(host, batch, {batch.seqs[0]: retry}, {batch.seqs[1]: suspension}) == (1, 1)
    assert box.suspended() == [("DELIVERY", True)]
    # The retry is due at once, and found although no host runs.
    assert QUEUE.find_waiting_ports(host) == {port_id}
    again = QUEUE.open_batch(host, port_id, limit=10)
    assert again is not None
    assert (again.seqs, again.tries) == (batch.seqs[:1], (1,))
    instance_changes.resume(box.connection, box.suspended_rows()[0].instance_id)
    assert QUEUE.complete(host, again) == 1
    resumed = QUEUE.open_batch(host, port_id, limit=10)
    assert resumed is not None
    assert resumed.seqs == batch.seqs[1:]


def test_the_messages_of_a_stopped_sink_wait_until_it_is_started(box: Box, port_id: uuid.UUID) -> None:
    ports.stop(box.connection, "Lake")
    publish(box, b"a")
    assert QUEUE.find_waiting_ports(box.connection) == set()
    assert box.suspended() == [("PORT_STOPPED", True)]
    ports.start(box.connection, "Lake")
    assert QUEUE.find_waiting_ports(box.connection) == {port_id}


def test_a_batch_belongs_to_its_host(box: Box, port_id: uuid.UUID, host: Connection) -> None:
    publish(box, b"a")
    other = box.add_host("Other")
    batch = QUEUE.open_batch(host, port_id, limit=10)
    assert batch is not None
    with connect(box.url, user=other.role_name) as stranger:
        theirs = SinkQueue("Other")
        assert theirs.open_batch(stranger, port_id, limit=10) is None
        with pytest.raises(ClaimLost):
            theirs.read_messages(stranger, batch.batch_id, batch.attempt, span(batch))
        with pytest.raises(ClaimLost):
            theirs.complete(stranger, batch)
        for call in (lambda: QUEUE.open_batch(stranger, port_id, limit=10), lambda: QUEUE.find_waiting_ports(stranger)):
            with pytest.raises(NotAllowed):
                call()
        with pytest.raises(NotAllowed):
            Contents(stranger).count("sink batches")


def test_the_query_for_waiting_sinks_skips_from_port_to_port(box: Box, port_id: uuid.UUID) -> None:
    add_sink(box, SparkSink("parquet", "other"), name="Other")
    box.add_port("Files", "exists(Orders.Region)")
    publish(box, b"a", b"b")
    other = box.port("Other").port_id
    assert QUEUE.find_waiting_ports(box.connection) == {port_id, other}
    batch = QUEUE.open_batch(box.connection, other, limit=10)
    assert batch is not None
    assert len(batch.seqs) == 2
    assert QUEUE.find_waiting_ports(box.connection) == {port_id, other}
