"""Operations on many instances: pieces, continuation by the hosts' job, pending operations, starts (INS-05, INS-06)."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from postroom.hosts import HostInstance
from postroom.message import Message
from postroom.messagebox import instance_operations, service_states
from postroom.messagebox.audit import list_audit
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import connect
from postroom.messagebox.instance_operations import (
    BulkOperation,
    get_operation,
    list_operations,
    run_operation,
    start_operation,
)
from postroom.messagebox.instances import InstanceQuery
from postroom.messagebox.maintenance import jobs
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.messagebox.queues import HostQueues, ScheduledRetry
from postroom.operations.ports import groups, send_ports
from postroom.operations.roles import grant_role
from tests.support import changes
from tests.support.box import Box, Region
from tests.support.contents import Contents
from tests.support.waiting import wait_until

EVERYTHING = InstanceQuery()


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (jobs, instance_operations):
        monkeypatch.setattr(module, "OPERATION_PIECE", 3)
    monkeypatch.setattr(service_states, "MAX_RESUMED", 3)


def publish(box: Box, count: int) -> None:
    box.agent().publish([Message.of(b"x", promoted={Region: "EU"}) for _ in range(count)])


def count_states(box: Box) -> dict[str, int]:
    return dict(Counter(one.state for one in box.instances()))


def test_an_operation_is_carried_out_in_pieces_with_progress(box: Box) -> None:
    """INS-16."""
    box.add_port("Europe", "Orders.Region == 'EU'")
    publish(box, 8)
    reported: list[BulkOperation] = []
    operation_id = start_operation(box.connection, "suspend", EVERYTHING, target="all")
    publish(box, 1)
    finished = run_operation(box.connection, operation_id, report=reported.append)
    assert [operation.remaining for operation in reported] == [5, 2, 0]
    assert (finished.total, finished.changed, finished.remaining) == (8, 8, 0)
    assert finished.finished_at is not None
    # An instance that came after the operation had started is not part of it.
    assert count_states(box) == {"ready to run": 1, "suspended": 8}
    *pieces, started = (entry.after or {} for entry in list_audit(box.connection, target=f"operation {operation_id}"))
    assert started == {"operation": operation_id, "conditions": "all", "chosen": 8}
    assert sorted(piece["instances"] for piece in pieces) == [2, 3, 3]
    assert [operation.operation_id for operation in list_operations(box.connection)] == [operation_id]
    run_all_jobs_once(box.connection)
    assert check(box.connection) == []


@pytest.mark.parametrize("kind", ["resume", "reroute", "suspend", "terminate"])
def test_the_jobs_of_a_host_continue_an_operation_whose_command_died(
    box: Box, kind: instance_operations.OperationKind
) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'", state="started" if kind == "suspend" else "stopped")
    publish(box, 7)
    with connect(box.url) as command:
        operation_id = start_operation(command, kind, EVERYTHING, target="all")
        command.execute("SELECT continue_operation(%s, 3)", (operation_id,))
    run_all_jobs_once(box.connection)
    finished = get_operation(box.connection, operation_id)
    assert (finished.changed, finished.remaining) == (7, 0)
    assert finished.finished_at is not None
    assert count_states(box) == {"suspend": {"suspended": 7}, "terminate": {}}.get(kind, {"ready to run": 7})
    assert check(box.connection) == []


def test_a_piece_that_is_rolled_back_changes_nothing_and_is_repeated(box: Box) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    publish(box, 4)
    operation_id = start_operation(box.connection, "terminate", EVERYTHING, target="all")
    with box.connection.transaction(force_rollback=True):
        box.connection.execute("SELECT continue_operation(%s, 3)", (operation_id,))
    assert get_operation(box.connection, operation_id).remaining == 4
    assert run_operation(box.connection, operation_id).changed == 4
    run_all_jobs_once(box.connection)
    assert check(box.connection) == []


def test_two_sessions_that_carry_out_one_operation_change_each_instance_once(box: Box) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    publish(box, 40)
    operation_id = start_operation(box.connection, "terminate", EVERYTHING, target="all")

    def run() -> None:
        with connect(box.url) as connection:
            run_operation(connection, operation_id)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert get_operation(box.connection, operation_id).changed == 40
    run_all_jobs_once(box.connection)
    assert box.count("messages") == 0
    assert check(box.connection) == []


@pytest.mark.parametrize("kind", ["suspend", "terminate"])
@pytest.mark.parametrize("succeeds", [False, True])
def test_a_pending_operation_is_carried_out_when_the_attempt_has_ended(box: Box, kind: str, succeeds: bool) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    publish(box, 1)
    queues, claim_id = HostQueues("Default"), uuid.uuid4()
    [claimed] = queues.dequeue(
        box.connection, claim_id=claim_id, host_instance=1, service_class=ServiceClass.MESSAGING_IN_PROCESS, limit=1
    )
    assert getattr(changes, kind)(box.connection, claimed.instance_id) is False
    [operation] = list_operations(box.connection)
    assert (operation.pending, operation.finished_at) == (1, None)
    box.connection.execute("SELECT continue_operation(NULL, 3)")
    assert count_states(box) == {"active": 1}
    if succeeds:
        queues.complete(box.connection, claim_id, [claimed.seq])
    else:
        retry = ScheduledRetry(delay=timedelta(minutes=5), code="DELIVERY", description="The receiver is down.")
        queues.retry(box.connection, claim_id, {claimed.seq: retry})
    run_all_jobs_once(box.connection)
    assert count_states(box) == ({"suspended": 1} if kind == "suspend" and not succeeds else {})
    operation = get_operation(box.connection, operation.operation_id)
    assert (operation.pending, operation.changed) == (0, int(not succeeds))
    assert operation.finished_at is not None
    assert check(box.connection) == []


def test_starting_a_port_resumes_a_few_messages_under_the_lock_and_the_others_later(box: Box) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'", state="stopped")
    publish(box, 8)
    with box.connection.transaction():
        change = send_ports.start(box.connection, "Europe")
        assert (change.resumed, count_states(box)) == (3, {"ready to run": 3, "suspended": 5})
    publish(box, 1)
    assert count_states(box) == {"ready to run": 4, "suspended": 5}
    run_all_jobs_once(box.connection)
    assert count_states(box) == {"ready to run": 9}
    numbers = [row.seq for row in sorted(box.queued_rows(), key=lambda row: (row.enqueued_at, row.seq))]
    assert numbers == sorted(numbers)
    assert check(box.connection) == []


def test_a_port_that_is_stopped_again_keeps_what_was_not_resumed_yet(box: Box) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'", state="stopped")
    publish(box, 8)
    with box.connection.transaction():
        send_ports.start(box.connection, "Europe")
    send_ports.stop(box.connection, "Europe")
    run_all_jobs_once(box.connection)
    assert count_states(box) == {"ready to run": 3, "suspended": 5}
    assert [operation.finished_at is None for operation in list_operations(box.connection)] == [False]
    assert send_ports.start(box.connection, "Europe").resumed == 5


def test_starting_a_group_resumes_everything_in_pieces(box: Box) -> None:
    box.add_port("Europe")
    box.add_group("All", ["Europe"], "Orders.Region == 'EU'", state="stopped")
    publish(box, 8)
    assert groups.start(box.connection, "All").resumed == 8
    assert count_states(box) == {"ready to run": 8}


def test_an_operator_runs_operations_and_cannot_change_them_otherwise(box: Box) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    publish(box, 4)
    login = "postroom_test_bulk"
    box.connection.execute(f"CREATE ROLE {login} LOGIN")
    try:
        grant_role(box.connection, "operators", login)
        with connect(box.url, user=login) as connection:
            assert changes.terminate_all(connection, EVERYTHING) == 4
            assert list_operations(connection)[0].requested_by == login
            for what in ("operations", "operation instances"):
                assert not Contents(connection).can_change(what)
    finally:
        box.connection.execute(f"DROP ROLE {login}")
    assert {entry.login for entry in list_audit(box.connection, action="instance.terminate")} == {login}


def test_a_running_host_carries_out_an_operation(box: Box, tmp_path: Path) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'", state="stopped")
    publish(box, 7)
    operation_id = start_operation(box.connection, "terminate", EVERYTHING, target="all")
    with HostInstance(box.url, "Default", tmp_path, as_role=True):
        wait_until(lambda: get_operation(box.connection, operation_id).finished_at is not None)
    assert count_states(box) == {}
