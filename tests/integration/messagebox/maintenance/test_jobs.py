"""The jobs: fold reference counts, delete unreferenced messages, purge old rows (REF-01 to 11)."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from postroom.errors import NotAllowed, PublishFailed, Unavailable
from postroom.message import FRAGMENT_SIZE, Message
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection, connect, transaction
from postroom.messagebox.maintenance.check import Violation, check
from postroom.messagebox.maintenance.jobs import (
    JOB_LOCK,
    Job,
    JobRun,
    JobSettings,
    ReceiptPurge,
    build_jobs,
    run_all_jobs_once,
    run_due_jobs,
)
from postroom.messagebox.queues import HostQueues
from postroom.operations.ports import send_ports
from tests.support.box import Box, Region
from tests.support.waiting import PATIENCE, wait_until

QUEUES = HostQueues("Default")


def orders(count: int, body: bytes = b"an order") -> list[Message]:
    return [Message.of(body, promoted={Region: "EU"}) for _ in range(count)]


def complete(connection: Connection, limit: int = 1000) -> int:
    """Dequeue messages and complete them, as a host does. Return their number."""
    claim_id = uuid.uuid4()
    claimed = QUEUES.dequeue(
        connection, claim_id=claim_id, host_instance=0, service_class=ServiceClass.MESSAGING_IN_PROCESS, limit=limit
    )
    return QUEUES.complete(connection, claim_id, [message.seq for message in claimed])


def count_stored(box: Box) -> tuple[int, int, int]:
    return box.count("messages"), box.count("parts"), box.count("fragments")


def read_active_logs(box: Box) -> list[int]:
    return [log for (log,) in box.connection.execute("SELECT active FROM active_ref_count_log ORDER BY kind")]


def count_rows(runs: list[JobRun]) -> dict[str, int]:
    assert [run.error for run in runs if run.error] == []
    return {run.name: run.rows for run in runs}


@pytest.fixture
def subscribed(box: Box) -> Box:
    for name in ("Europe", "Audit"):
        box.add_port(name, "Orders.Region == 'EU'")
    return box


def test_the_jobs_delete_a_message_after_its_last_reference(subscribed: Box) -> None:
    """REF-05."""
    box = subscribed
    box.agent().publish(orders(3, b"x" * 2 * FRAGMENT_SIZE))
    run_all_jobs_once(box.connection)
    assert complete(box.connection, 1) == 1
    run_all_jobs_once(box.connection)
    complete(box.connection)
    assert count_stored(box) == (3, 3, 6), "completing alone deletes nothing"
    runs = count_rows(run_all_jobs_once(box.connection))
    assert count_stored(box) == (0, 0, 0)
    assert (runs["message_cleanup"], runs["parts_cleanup"]) == (3, 3)
    for table in ("ref_count_log_1", "ref_count_log_2", "ref_count_log_totals", "zero_sum"):
        assert box.count_rows(f"message_{table}") == box.count_rows(f"part_{table}") == 0, table
    assert check(box.connection) == []


def test_the_active_logs_alternate_only_when_there_is_something_to_fold(subscribed: Box) -> None:
    """REF-02."""
    box = subscribed
    agent = box.agent()
    assert read_active_logs(box) == [1, 1]
    for _ in range(3):
        before = read_active_logs(box)
        agent.publish(orders(1))
        run_all_jobs_once(box.connection)
        assert read_active_logs(box) == [3 - log for log in before]
        run_all_jobs_once(box.connection)
        assert read_active_logs(box) == [3 - log for log in before], "nothing to fold, nothing to flip"


def test_suspended_instances_keep_their_messages(box: Box) -> None:
    """REF-09."""
    box.add_port("Europe", "Orders.Region == 'EU'", state="stopped")
    box.agent().publish(orders(2))
    for _ in range(2):
        run_all_jobs_once(box.connection)
        assert count_stored(box) == (2, 2, 0)
    send_ports.start(box.connection, "Europe")
    complete(box.connection)
    run_all_jobs_once(box.connection)
    assert count_stored(box) == (0, 0, 0)


def test_a_part_outlives_the_first_of_two_messages_that_share_it(subscribed: Box) -> None:
    """REF-06."""
    box = subscribed
    (message,) = orders(1)
    agent = box.agent()
    agent.publish([message])
    second = uuid.uuid4()
    with box.connection.transaction():
        box.connection.execute(
            "INSERT INTO spool SELECT %s, part_ids, body_part_id, body_part_name, context FROM spool", (second,)
        )
        box.connection.execute(
            "INSERT INTO default_q (host_id, message_id, service_class, instance_id, priority)"
            " VALUES (1, %s, 'messaging_in_process', gen_random_uuid(), 10)",
            (second,),
        )
        box.connection.execute("INSERT INTO message_ref_count_log_1 VALUES (%s, 1)", (second,))
        box.connection.execute("INSERT INTO part_ref_count_log_1 SELECT part_id, 1 FROM parts")
    assert complete(box.connection, 2) == 2, "those of the first message"
    run_all_jobs_once(box.connection)
    assert count_stored(box) == (1, 1, 0)
    assert check(box.connection) == []
    complete(box.connection)
    run_all_jobs_once(box.connection)
    assert count_stored(box) == (0, 0, 0)


@contextmanager
def open_connection(box: Box) -> Iterator[Connection]:
    with connect(box.url) as connection:
        yield connection


def test_a_fold_waits_for_a_running_publish_and_counts_it(subscribed: Box) -> None:
    box = subscribed
    with open_connection(box) as publisher, publisher.transaction():
        box.agent(connection=publisher).publish(orders(1))
        box.agent().publish(orders(1))
        runs = count_rows(run_all_jobs_once(box.connection))
        assert runs["manage_message_ref_count_log"] == 0, "the fold gives up if it does not get the lock in time"
        assert read_active_logs(box) == [2, 2]
    complete(box.connection)
    run_all_jobs_once(box.connection)
    assert count_stored(box) == (0, 0, 0)
    assert check(box.connection) == []


def test_a_writer_that_read_the_flag_before_the_flip_is_counted_later(subscribed: Box) -> None:
    box = subscribed
    agent = box.agent()
    agent.publish(orders(1))
    (late,) = orders(1)
    with open_connection(box) as writer, writer.transaction():
        log = writer.execute("SELECT message_log FROM lock_routing()").fetchone()
        assert log == (1,)
        run_all_jobs_once(box.connection)
        assert read_active_logs(box) == [2, 2]
        # The writer appends to a log that is already folded.
        writer.execute("INSERT INTO spool (message_id, part_ids, context) VALUES (%s, '{}', '{}')", (late.message_id,))
        writer.execute(
            "INSERT INTO default_q (host_id, message_id, service_class, instance_id, priority)"
            " VALUES (1, %s, 'messaging_in_process', gen_random_uuid(), 1)",
            (late.message_id,),
        )
        writer.execute("INSERT INTO message_ref_count_log_1 VALUES (%s, 1)", (late.message_id,))
    assert check(box.connection) == []
    claimed = complete(box.connection, 1)
    assert claimed == 1, "the release is in the other log"
    log = box.one("SELECT flip_ref_count_log('message')")
    box.one("SELECT fold_ref_count_log('message', %s)", log)
    assert box.one("SELECT total FROM message_ref_count_log_totals WHERE message_id = %s", late.message_id) == -1
    box.one("SELECT message_cleanup()")
    assert box.one("SELECT count(*) FROM spool WHERE message_id = %s", late.message_id) == 1, (
        "one log still contains a row"
    )
    assert check(box.connection) == []
    run_all_jobs_once(box.connection)
    assert box.one("SELECT count(*) FROM spool WHERE message_id = %s", late.message_id) == 0
    assert check(box.connection) == []


def test_a_count_that_is_no_longer_zero_deletes_nothing(subscribed: Box) -> None:
    """A released message has a new reference that is not folded yet."""
    box = subscribed
    (message,) = orders(1)
    box.agent().publish([message])
    box.connection.execute("INSERT INTO message_zero_sum VALUES (%s)", (message.message_id,))
    assert box.one("SELECT message_cleanup()") == 0, "the references are still in the log"
    run_all_jobs_once(box.connection)
    assert count_stored(box) == (1, 1, 0)
    assert box.count_rows("message_zero_sum") == 0


def test_under_load_no_count_is_lost_and_the_spool_returns_to_zero(subscribed: Box) -> None:
    """ACC-80, ACC-82: publishers, consumers, jobs and checks run at the same time."""
    box = subscribed
    done = threading.Event()
    published, completed = [0, 0], [0]
    active_logs: set[int] = set()
    violations: list[Violation] = []

    def publish(number: int) -> None:
        with open_connection(box) as connection:
            agent = box.agent(connection=connection)
            for _ in range(30):
                agent.publish(orders(5))
                published[number] += 10
                # The jobs may flip the log twice between two checks, so the publishers record the active log.
                active_logs.update(log for (log,) in connection.execute("SELECT active FROM active_ref_count_log"))

    def consume() -> None:
        with open_connection(box) as connection:
            while not (done.is_set() and completed[0] == sum(published)):
                # No process is registered for the claim, so a job releases it while it is completed.
                completed[0] += transaction(connection, lambda it: complete(it, 7))

    def run_jobs() -> None:
        with open_connection(box) as connection:
            while not done.is_set():
                assert [run.error for run in run_all_jobs_once(connection) if run.error] == []

    def run_checks() -> None:
        with open_connection(box) as connection:
            while not done.is_set():
                violations.extend(
                    violation for violation in check(connection) if violation.invariant != "claims_of_dead_instances"
                )

    failed: list[BaseException] = []

    def run_guarded(work: object, *arguments: int) -> None:
        try:
            work(*arguments)  # type: ignore[operator]
        except BaseException as error:
            failed.append(error)
            done.set()

    publishers = [threading.Thread(target=run_guarded, args=(publish, number)) for number in range(2)]
    others = [threading.Thread(target=run_guarded, args=(work,)) for work in (consume, run_jobs, run_checks)]
    for thread in (*publishers, *others):
        thread.start()
    for thread in publishers:
        thread.join(PATIENCE)
    wait_until(lambda: completed[0] == 600 or failed)
    done.set()
    for thread in others:
        thread.join(PATIENCE)
    assert failed == []
    assert violations == []
    assert active_logs == {1, 2}
    run_all_jobs_once(box.connection)
    assert count_stored(box) == (0, 0, 0)
    assert check(box.connection) == []


def test_a_removed_subscription_is_purged_after_its_predicates(subscribed: Box) -> None:
    """REF-11."""
    box = subscribed
    send_ports.unenlist(box.connection, "Europe")
    assert (box.count_rows("subscriptions"), box.count_rows("predicate_groups"), box.count("predicates")) == (2, 4, 4)
    run_all_jobs_once(box.connection)
    assert (box.count_rows("subscriptions"), box.count_rows("predicate_groups"), box.count("predicates")) == (2, 2, 2)
    run_all_jobs_once(box.connection, JobSettings(keep_removed_subscriptions=timedelta(0)))
    assert box.count_rows("subscriptions") == 1
    assert check(box.connection) == []


def test_old_receipts_are_deleted(box: Box) -> None:
    box.connection.execute(
        "INSERT INTO receipts (unit, published_at) VALUES (gen_random_uuid(), now()),"
        " (gen_random_uuid(), now() - interval '8 days')"
    )
    assert count_rows(run_all_jobs_once(box.connection))["purge_receipts"] == 1
    assert box.count("receipts") == 1


def test_the_reports_of_a_refused_publish_are_deleted_after_seven_days(box: Box) -> None:
    for _ in range(2):
        with pytest.raises(PublishFailed):
            box.agent().publish(orders(1))
    kept = "SELECT max(seq) FROM suspended_queue"
    box.connection.execute(f"UPDATE suspended_queue SET suspended_at = now() - interval '8 days' WHERE seq < ({kept})")
    assert count_rows(run_all_jobs_once(box.connection))["operate_on_instances"] == 1
    assert box.suspended() == [("ROUTING", False)]
    assert box.count("messages") == 1
    assert check(box.connection) == []


def test_receipts_do_not_get_older_by_a_step_of_the_clock(box: Box) -> None:
    elapsed = timedelta()
    purge = ReceiptPurge(timedelta(days=7), monotonic=lambda: elapsed.total_seconds())
    # The server's clock was set forward by 30 days after this publish.
    box.connection.execute("UPDATE receipt_clock SET trusted_at = now() - interval '30 days'")
    box.connection.execute(
        "INSERT INTO receipts (unit, published_at) SELECT gen_random_uuid(), trusted_at FROM receipt_clock"
    )
    assert purge.run(box.connection) == 0
    elapsed += timedelta(days=7)
    assert purge.run(box.connection) == 0
    elapsed += timedelta(seconds=1)
    assert purge.run(box.connection) == 1


def test_the_clock_of_receipts_counts_the_time_of_several_processes_once(box: Box) -> None:
    elapsed = timedelta()
    purges = [ReceiptPurge(timedelta(days=7), monotonic=lambda: elapsed.total_seconds()) for _ in range(2)]
    box.connection.execute("UPDATE receipt_clock SET trusted_at = now() - interval '30 days'")
    started = box.one("SELECT trusted_at FROM receipt_clock")
    for _ in range(3):
        elapsed += timedelta(hours=1)
        for purge in purges:
            purge.observe(box.connection)
        for purge in purges:
            purge.run(box.connection)
    # The time before the first observation is unknown.
    assert box.one("SELECT trusted_at FROM receipt_clock") - started == timedelta(hours=2)


def test_the_clock_of_receipts_is_never_ahead_of_the_server(box: Box) -> None:
    elapsed = timedelta()
    purge = ReceiptPurge(timedelta(days=7), monotonic=lambda: elapsed.total_seconds())
    purge.run(box.connection)
    elapsed += timedelta(days=30)
    purge.run(box.connection)
    assert box.one("SELECT trusted_at <= clock_timestamp() FROM receipt_clock")


def test_new_receipts_are_not_old_after_the_clock_is_set_back(box: Box) -> None:
    """The clock of the server was 30 days ahead when the MessageBox was created."""
    box.connection.execute("UPDATE receipt_clock SET trusted_at = now() + interval '30 days'")
    box.connection.execute("INSERT INTO receipts (unit) VALUES (gen_random_uuid())")
    assert ReceiptPurge(timedelta(days=7)).run(box.connection) == 0
    assert box.one("SELECT trusted_at <= clock_timestamp() FROM receipt_clock")


@pytest.mark.parametrize("moment", ["infinity", "-infinity"])
def test_a_host_cannot_set_the_clock_of_receipts(box: Box, moment: str) -> None:
    with connect(box.url, user=box.host().role_name) as connection:
        connection.execute("SELECT advance_receipt_clock(%s::interval, %s)", (moment, moment))
    assert box.one("SELECT trusted_at <= clock_timestamp() AND trusted_at > now() - interval '1 h' FROM receipt_clock")


def test_every_run_is_recorded(box: Box) -> None:
    for number in (1, 2):
        run_all_jobs_once(box.connection)
        rows = box.connection.execute("SELECT name, runs, error, finished_at >= started_at FROM job_runs").fetchall()
        assert sorted(rows) == sorted((job.name, number, None, True) for job in build_jobs())


def test_a_failed_job_is_recorded_and_the_other_jobs_run(box: Box) -> None:
    box.connection.execute("DROP FUNCTION operate_on_instances()")
    runs = run_all_jobs_once(box.connection)
    assert len(runs) == len(build_jobs())
    assert [run.name for run in runs if run.error] == ["operate_on_instances"]
    assert "operate_on_instances() does not exist" in box.one("SELECT error FROM job_runs WHERE error IS NOT NULL")


def test_a_job_is_due_when_its_interval_has_passed_since_any_host_ran_it(box: Box) -> None:
    ran: list[str] = []

    def job(name: str, interval: timedelta) -> Job:
        return Job(name=name, interval=interval, run=lambda connection: ran.append(name) or 0)  # type: ignore[func-returns-value]

    jobs = [job("rarely", timedelta(hours=1)), job("always", timedelta(0))]
    run_due_jobs(box.connection, jobs)
    run_due_jobs(box.connection, jobs)
    with open_connection(box) as connection:
        run_due_jobs(connection, jobs)
    assert ran == ["rarely", "always", "always", "always"]
    box.connection.execute("UPDATE job_runs SET finished_at = now() - interval '2 hours'")
    run_due_jobs(box.connection, jobs)
    assert ran[4:] == ["rarely", "always"]
    # The clock was set back by an hour after the last run.
    box.connection.execute("UPDATE job_runs SET finished_at = now() + interval '1 hour'")
    run_due_jobs(box.connection, jobs)
    assert ran[6:] == ["rarely", "always"]


def test_one_session_at_a_time_runs_jobs(box: Box) -> None:
    with open_connection(box) as connection:
        connection.execute("SELECT pg_advisory_lock(%s, %s)", JOB_LOCK)
        assert run_due_jobs(box.connection, build_jobs()) == []
        with pytest.raises(Unavailable, match="Another session"):
            run_all_jobs_once(box.connection, wait=timedelta(milliseconds=10))
    assert len(run_all_jobs_once(box.connection)) == len(build_jobs())
    with open_connection(box) as connection:
        assert connection.execute("SELECT pg_try_advisory_lock(%s, %s)", JOB_LOCK).fetchone() == (True,), "released"


def test_a_host_can_run_the_jobs_and_cannot_read_their_tables(box: Box) -> None:
    with connect(box.url, user=box.host().role_name) as connection:
        assert [run.error for run in run_all_jobs_once(connection) if run.error] == []
        with pytest.raises(NotAllowed):
            connection.execute("SELECT * FROM message_ref_count_log_1")
