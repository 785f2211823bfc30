"""A message with one reference is counted by its own row, and deleted with its last reference, without log and job."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from postroom.errors import StaleRouting
from postroom.message import FRAGMENT_SIZE, Bytes, Message, Part
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.coordination.running_processes import read_routing_version
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.messagebox.maintenance.repair import repair_messagebox
from postroom.messagebox.queues import HostQueues
from postroom.messagebox.storage.inserts import build_inserts
from postroom.operations.ports import send_ports
from tests.support.box import Box, Region
from tests.support.publishers import is_waiting_for_lock
from tests.support.reference_counts import COUNTS, STORED, count_rows
from tests.support.waiting import wait_until

QUEUES = HostQueues("Default")
#: More messages than these are written by COPY.
CALLS = 5


@pytest.fixture
def subscribed(box: Box) -> Box:
    box.add_port("Europe", "Orders.Region == 'EU'")
    return box


def orders(count: int, body: bytes = b"an order") -> list[Message]:
    return [Message.of(body, promoted={Region: "EU"}) for _ in range(count)]


def publish_by_call(box: Box) -> int:
    box.agent().publish(orders(1))
    return 1


def publish_by_copy(box: Box) -> int:
    box.agent().publish(orders(CALLS + 1))
    return CALLS + 1


def receive(box: Box) -> int:
    location = box.add_location()
    box.receive(location, b'{"region": "EU"}\n{"region": "EU"}\n')
    return 2


def complete(connection: Connection, limit: int = 1_000) -> int:
    """Dequeue messages and complete them, as a host does. Return their number."""
    claim_id = uuid.uuid4()
    claimed = QUEUES.dequeue(
        connection, claim_id=claim_id, host_instance=0, service_class=ServiceClass.MESSAGING_IN_PROCESS, limit=limit
    )
    return QUEUES.complete(connection, claim_id, [message.seq for message in claimed])


@pytest.mark.parametrize("publish", [publish_by_call, publish_by_copy, receive])
def test_a_message_with_one_reference_needs_no_log_and_no_job(subscribed: Box, publish: Callable[[Box], int]) -> None:
    box = subscribed
    count = publish(box)
    assert count_rows(box, *STORED, *COUNTS) == {"spool": count, "parts": count}
    assert check(box.connection) == []
    run_all_jobs_once(box.connection)
    assert complete(box.connection) == count
    assert count_rows(box, *STORED, *COUNTS) == {}
    assert check(box.connection) == []


@pytest.mark.parametrize("publish", [publish_by_call, publish_by_copy, receive])
def test_two_references_are_counted_in_the_logs(subscribed: Box, publish: Callable[[Box], int]) -> None:
    """REF-03."""
    box = subscribed
    box.add_port("Audit", "Orders.Region == 'EU'")
    count = publish(box)
    assert box.one("SELECT sum(delta) FROM message_ref_count_log_1") == 2 * count
    assert box.one("SELECT sum(delta) FROM part_ref_count_log_1") == 2 * count
    assert box.one("SELECT count(*) FROM spool WHERE only_reference") == 0
    assert check(box.connection) == []
    complete(box.connection, count)
    assert count_rows(box, *STORED) == {"spool": count, "parts": count}
    complete(box.connection)
    run_all_jobs_once(box.connection)
    assert count_rows(box, *STORED, *COUNTS) == {}


@pytest.mark.parametrize("count", [1, CALLS + 1])
def test_parts_in_fragments_are_left_to_the_cleanup(subscribed: Box, count: int) -> None:
    box = subscribed
    box.agent().publish(orders(count, b"x" * 2 * FRAGMENT_SIZE))
    assert check(box.connection) == []
    assert complete(box.connection) == count
    assert count_rows(box, *STORED) == {"parts": count, "fragments": 2 * count}
    assert check(box.connection) == []
    run_all_jobs_once(box.connection)
    assert count_rows(box, *STORED, *COUNTS) == {}


@pytest.mark.parametrize("count", [1, CALLS + 1])
def test_all_parts_of_a_message_are_deleted(subscribed: Box, count: int) -> None:
    box = subscribed
    contents = (b"body", b"appendix", b"x" * 2 * FRAGMENT_SIZE)
    parts = [
        tuple(Part(name=str(number), body=Bytes(content)) for number, content in enumerate(contents))
        for _ in range(count)
    ]
    messages = [Message.of(b"", promoted={Region: "EU"}) for _ in range(count)]
    box.agent().publish(
        [
            Message(context=message.context, parts=each, body_part_name="0")
            for message, each in zip(messages, parts, strict=True)
        ]
    )
    assert check(box.connection) == []
    assert repair_messagebox(box.connection) == []
    assert complete(box.connection) == count
    assert box.count("messages") == 0
    assert check(box.connection) == []
    run_all_jobs_once(box.connection)
    assert count_rows(box, *STORED, *COUNTS) == {}


def test_a_stopped_port_keeps_its_message(box: Box) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'", state="stopped")
    publish_by_call(box)
    run_all_jobs_once(box.connection)
    assert count_rows(box, *STORED, *COUNTS) == {"spool": 1, "parts": 1}
    send_ports.start(box.connection, "Europe")
    assert complete(box.connection) == 1
    assert count_rows(box, *STORED, *COUNTS) == {}


def test_a_terminated_instance_deletes_its_message(subscribed: Box) -> None:
    box = subscribed
    publish_by_copy(box)
    box.connection.execute("SELECT terminate_instances(array_agg(instance_id)) FROM instances")
    assert count_rows(box, *STORED, *COUNTS) == {}


def test_a_completion_that_is_rolled_back_keeps_the_message(subscribed: Box) -> None:
    box = subscribed
    publish_by_copy(box)
    with box.connection.transaction(force_rollback=True):
        assert complete(box.connection) == CALLS + 1
        assert count_rows(box, *STORED) == {}
    assert check(box.connection) == []
    assert complete(box.connection) == CALLS + 1
    assert count_rows(box, *STORED, *COUNTS) == {}


def test_messages_with_one_and_with_two_references_are_completed_together(subscribed: Box) -> None:
    box = subscribed
    box.add_port("Everything", "exists(Orders.Region)")
    other = [Message.of(b"x", promoted={Region: "US"}) for _ in range(CALLS)]
    box.agent().publish([*orders(CALLS), *other])
    assert box.one("SELECT count(*) FROM spool WHERE only_reference") == CALLS
    assert complete(box.connection) == 3 * CALLS
    assert box.count("messages") == CALLS
    assert check(box.connection) == []
    run_all_jobs_once(box.connection)
    assert count_rows(box, *STORED, *COUNTS) == {}


# -- a second reference -----------------------------------------------------------------------------------------------


def add_reference(connection: Connection) -> None:
    """Add a reference to the one message as its publisher does when it is published again."""
    connection.execute("SELECT int_count_in_logs(array_agg(message_id)) FROM spool")
    connection.execute(
        "INSERT INTO default_q (host_id, message_id, service_class, instance_id, priority)"
        " SELECT 1, message_id, 'messaging_in_process', gen_random_uuid(), 5 FROM spool"
    )
    connection.execute("SELECT int_log_references(1, ARRAY[message_id], part_ids) FROM spool")


def test_a_second_reference_moves_the_count_to_the_logs(subscribed: Box) -> None:
    box = subscribed
    publish_by_call(box)
    with box.connection.transaction():
        add_reference(box.connection)
    assert box.one("SELECT total FROM message_ref_counts") == box.one("SELECT total FROM part_ref_counts") == 2
    assert check(box.connection) == []
    assert repair_messagebox(box.connection) == []
    assert complete(box.connection, 1) == 1
    run_all_jobs_once(box.connection)
    assert count_rows(box, *STORED) == {"spool": 1, "parts": 1}
    assert complete(box.connection, 1) == 1
    run_all_jobs_once(box.connection)
    assert count_rows(box, *STORED, *COUNTS) == {}


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_release_waits_for_a_transaction_that_adds_a_second_reference(subscribed: Box, is_committed: bool) -> None:
    box = subscribed
    publish_by_call(box)
    with connect(box.url) as adding, connect(box.url) as completing, ThreadPoolExecutor(1) as pool:
        with adding.transaction(force_rollback=not is_committed):
            add_reference(adding)
            completed = pool.submit(complete, completing, 1)
            wait_until(lambda: is_waiting_for_lock(box, completing), what="the completion waits")
        assert completed.result() == 1
    assert check(box.connection) == []
    run_all_jobs_once(box.connection)
    assert count_rows(box, *STORED) == ({"spool": 1, "parts": 1} if is_committed else {})
    assert complete(box.connection) == is_committed
    run_all_jobs_once(box.connection)
    assert count_rows(box, *STORED, *COUNTS) == {}


def test_the_cleanup_keeps_a_message_that_its_row_counts(subscribed: Box) -> None:
    """Any host can write to the logs, also deltas that cancel out."""
    box = subscribed
    publish_by_copy(box)
    for kind, table in (("message", "spool"), ("part", "parts")):
        box.connection.execute(
            f"INSERT INTO {kind}_ref_count_log_1 SELECT {kind}_id, d FROM {table}, unnest(ARRAY[1, -1]) d"
        )
    for _ in range(2):
        run_all_jobs_once(box.connection)
    assert count_rows(box, *STORED, *COUNTS) == {"spool": CALLS + 1, "parts": CALLS + 1}


def test_nothing_is_lost_or_left_while_publishers_hosts_jobs_and_repairs_run(subscribed: Box) -> None:
    box = subscribed
    box.add_port("Large", "Orders.Region == 'EU' and Orders.Total > 0")
    published = threading.Event()

    def deliver() -> int:
        total = 0
        with connect(box.url) as connection:
            while (count := complete(connection, 7)) or not published.is_set():
                total += count
        return total

    def maintain() -> None:
        with connect(box.url) as connection:
            while not published.is_set():
                run_all_jobs_once(connection)
                assert repair_messagebox(connection) == []
                assert {found.invariant for found in check(connection)} <= {"claims_of_dead_instances"}

    with ThreadPoolExecutor(3) as pool:
        deliveries = [pool.submit(deliver) for _ in range(2)]
        maintenance = pool.submit(maintain)
        try:
            for _ in range(30):
                publish_by_copy(box)
                publish_by_call(box)
        finally:
            published.set()
        maintenance.result()
    delivered = sum(future.result() for future in deliveries) + complete(box.connection)
    assert delivered == 30 * (CALLS + 2)
    run_all_jobs_once(box.connection)
    assert count_rows(box, *STORED, *COUNTS) == {}


# -- repair -----------------------------------------------------------------------------------------------------------

#: What is done to messages that their rows count, and the kinds of counts that the repair corrects.
DAMAGES = {
    "UPDATE spool SET only_reference = false": {"message reference counts"},
    "UPDATE parts SET only_reference = false": {"part reference counts"},
    "UPDATE spool SET counted_in = '3'": {"message reference counts"},
    "UPDATE parts SET counted_in = '3'": {"part reference counts"},
    "UPDATE work_queue SET counted_in = '3'": {"message reference counts", "part reference counts"},
    "INSERT INTO message_ref_count_log_1 SELECT message_id, -1 FROM spool": {"message reference counts"},
    "INSERT INTO part_ref_count_log_totals SELECT part_id, '3', 2 FROM parts": {"part reference counts"},
    "DELETE FROM work_queue": {"message reference counts", "part reference counts"},
    "INSERT INTO default_q (host_id, message_id, service_class, instance_id, priority)"
    " SELECT 1, message_id, 'messaging_in_process', gen_random_uuid(), 5 FROM spool": {
        "message reference counts",
        "part reference counts",
    },
}


def test_a_message_without_a_subscription_is_not_inserted(box: Box) -> None:
    [(call, values)] = build_inserts(read_routing_version(box.connection), Message.of(b"an order"), ([], [], []))
    with pytest.raises(StaleRouting):
        box.connection.execute(f"SELECT {call}", values)
    assert box.count("messages") == 0


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_is_repaired_and_no_referenced_message_is_deleted(subscribed: Box, damage: str) -> None:
    box = subscribed
    publish_by_copy(box)
    box.connection.execute(damage)
    queued = box.count("queued")
    assert {repair.what for repair in repair_messagebox(box.connection)} == DAMAGES[damage]
    assert check(box.connection) == []
    assert repair_messagebox(box.connection) == []
    run_all_jobs_once(box.connection)
    stored = CALLS + 1 if queued else 0
    assert (box.count("messages"), box.count("parts")) == (stored, stored)
    assert complete(box.connection) == queued
    run_all_jobs_once(box.connection)
    assert count_rows(box, *STORED, *COUNTS) == {}
