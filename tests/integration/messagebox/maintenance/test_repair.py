"""`postroom check --repair` rebuilds reference counts, also while messages are published and delivered."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from postroom.errors import Unavailable
from postroom.message import FRAGMENT_SIZE, Message
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.maintenance import repair as repair_module
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import build_jobs, run_all_jobs_once, run_due_jobs
from postroom.messagebox.maintenance.repair import repair_messagebox
from postroom.messagebox.queues import HostQueues
from tests.support.box import Box, Region
from tests.support.waiting import wait_until

#: What is done to a healthy MessageBox, and what the repair reports.
DAMAGES = {
    "UPDATE message_ref_count_log_totals SET total = 1": {("message reference counts", "too low")},
    "UPDATE part_ref_count_log_totals SET total = -3": {("part reference counts", "too low")},
    "UPDATE message_ref_count_log_totals SET total = 7": {("message reference counts", "too high")},
    "INSERT INTO part_ref_count_log_2 SELECT part_id, 1 FROM parts": {("part reference counts", "too high")},
    "INSERT INTO message_ref_count_log_1 SELECT message_id, -1 FROM spool": {("message reference counts", "too low")},
    "DELETE FROM message_ref_count_log_totals": {("message reference counts", "missing")},
    "DELETE FROM part_ref_count_log_totals": {("part reference counts", "missing")},
    # The next cleanup would delete every message.
    "DELETE FROM message_ref_count_log_totals; INSERT INTO message_zero_sum SELECT message_id FROM spool": {
        ("message reference counts", "too low")
    },
    "INSERT INTO message_ref_count_log_totals VALUES (gen_random_uuid(), '3', 2)": {
        ("message reference counts", "left over")
    },
    "INSERT INTO part_ref_count_log_1 VALUES (gen_random_uuid(), -1)": {("part reference counts", "left over")},
    "INSERT INTO message_ref_count_log_totals VALUES (gen_random_uuid(), '3', 0)": {
        ("message reference counts", "left over")
    },
    "INSERT INTO parts VALUES (gen_random_uuid(), 'body', 'text/plain', NULL, 1, 'x')": {
        ("part reference counts", "missing")
    },
    "DELETE FROM work_queue": {("message reference counts", "too high"), ("part reference counts", "too high")},
    "DELETE FROM work_queue; UPDATE message_ref_count_log_totals SET total = 0;"
    " DELETE FROM part_ref_count_log_totals": {
        ("message reference counts", "not scheduled for cleanup"),
        ("part reference counts", "missing"),
    },
    "INSERT INTO message_properties (batch_id, message_id, property_id) VALUES ("
    " gen_random_uuid(), gen_random_uuid(), 1)": {("rows of message_properties", "unused")},
    "INSERT INTO message_predicates VALUES (gen_random_uuid(), gen_random_uuid(), 'key', 'value')": {
        ("rows of message_predicates", "unused")
    },
    "INSERT INTO predicates (predicate_table, group_id, property_id, operator) VALUES (4, -1, 1, 6)": {
        ("rows of predicates", "unused")
    },
}


@pytest.fixture
def loaded(box: Box) -> Box:
    """Two ports, a small and a large message for both of them, counted."""
    for name in ("Europe", "Audit"):
        box.add_port(name, "Orders.Region == 'EU'")
    box.agent().publish([Message.of(b"x" * size, promoted={Region: "EU"}) for size in (10, 3 * FRAGMENT_SIZE)])
    run_all_jobs_once(box.connection)
    return box


def complete(connection: Connection, limit: int) -> int:
    queues, claim_id = HostQueues("Default"), uuid.uuid4()
    claimed = queues.dequeue(
        connection, claim_id=claim_id, host_instance=0, service_class=ServiceClass.MESSAGING_IN_PROCESS, limit=limit
    )
    return queues.complete(connection, claim_id, [message.seq for message in claimed]) if claimed else 0


def test_a_healthy_messagebox_is_not_changed(loaded: Box) -> None:
    complete(loaded.connection, 1)
    assert repair_messagebox(loaded.connection) == []
    assert complete(loaded.connection, 3) == 3
    assert repair_messagebox(loaded.connection) == []


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_is_repaired_and_no_referenced_message_is_deleted(loaded: Box, damage: str) -> None:
    loaded.connection.execute(damage)
    queued = loaded.count("queued")
    repairs = repair_messagebox(loaded.connection)
    assert {(repair.what, repair.problem) for repair in repairs} == DAMAGES[damage]
    assert all(repair.count > 0 for repair in repairs)
    assert check(loaded.connection) == []
    assert repair_messagebox(loaded.connection) == []
    run_all_jobs_once(loaded.connection)
    stored = 2 if queued else 0
    assert (loaded.count("messages"), loaded.count("parts")) == (stored, stored)
    assert complete(loaded.connection, 10) == queued
    run_all_jobs_once(loaded.connection)
    assert (loaded.count("messages"), loaded.count("parts"), loaded.count("fragments")) == (0, 0, 0)
    assert check(loaded.connection) == []


def test_the_examples_show_the_old_and_the_new_count(loaded: Box) -> None:
    loaded.connection.execute("UPDATE message_ref_count_log_totals SET total = 7")
    [repair] = repair_messagebox(loaded.connection)
    message_id = loaded.one("SELECT message_id FROM spool ORDER BY message_id LIMIT 1")
    assert repair.count == len(repair.examples) == 2
    assert repair.examples[0] == f"message {message_id}, 7 counted, 2 in the queues"


def test_parts_are_kept_while_their_message_is_missing_in_the_spool(loaded: Box) -> None:
    loaded.connection.execute("DELETE FROM spool")
    assert repair_messagebox(loaded.connection) == []
    run_all_jobs_once(loaded.connection)
    assert loaded.count("parts") == 2


def test_a_repair_gives_up_while_a_transaction_writes(loaded: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair_module, "_LOCK_TIMEOUT", "10ms")
    with connect(loaded.url) as publisher, publisher.transaction():
        loaded.agent(connection=publisher).publish([Message.of(b"x", promoted={Region: "EU"})])
        with pytest.raises(Unavailable, match="could not be locked"):
            repair_messagebox(loaded.connection)
    assert repair_messagebox(loaded.connection) == []


def test_counts_that_are_damaged_under_load_are_repaired_under_load(loaded: Box) -> None:
    """Publishers, a completer and the jobs run during all damages and repairs. At the end every message was delivered
    to both ports, and nothing is left."""
    stop = threading.Event()
    published = delivered = 0

    def publish() -> None:
        nonlocal published
        with connect(loaded.url) as connection:
            agent = loaded.agent(connection=connection)
            while not stop.is_set():
                agent.publish([Message.of(b"x", promoted={Region: "EU"}) for _ in range(5)])
                published += 5

    def deliver() -> None:
        nonlocal delivered
        with connect(loaded.url) as connection:
            while not stop.is_set():
                delivered += complete(connection, 7)

    def run_jobs() -> None:
        # Without the cleanups, which may delete messages between a damage and its repair.
        known = [job for job in build_jobs() if not job.name.endswith("cleanup")]
        with connect(loaded.url) as connection:
            while not stop.is_set():
                run_due_jobs(connection, known)

    def wait_for_progress() -> None:
        before = (published, delivered)
        wait_until(lambda: published > before[0] and delivered > before[1], what="messages and deliveries")

    damages = (
        "UPDATE message_ref_count_log_totals SET total = total + 3",
        "UPDATE part_ref_count_log_totals SET total = total - 1",
        "DELETE FROM message_ref_count_log_totals",
        "INSERT INTO message_ref_count_log_1 SELECT message_id, -2 FROM spool LIMIT 20",
        "INSERT INTO part_ref_count_log_totals VALUES (gen_random_uuid(), '3', 4)",
    )
    workers: list[Callable[[], None]] = [publish, deliver, run_jobs]
    with ThreadPoolExecutor() as threads:
        running = [threads.submit(worker) for worker in workers]
        try:
            for damage in damages:
                wait_for_progress()
                loaded.connection.execute(damage)
                repair_messagebox(loaded.connection)
                # The completer claims without a registered host instance.
                found = {violation.invariant for violation in check(loaded.connection)}
                assert found <= {"claims_of_dead_instances"}
        finally:
            stop.set()
        for worker in running:
            worker.result()
    while count := complete(loaded.connection, 500):
        delivered += count
    assert delivered == 2 * (published + 2)
    run_all_jobs_once(loaded.connection)
    assert (loaded.count("messages"), loaded.count("parts")) == (0, 0)
    assert check(loaded.connection) == []
