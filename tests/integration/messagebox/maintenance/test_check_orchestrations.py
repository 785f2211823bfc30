"""The invariants of orchestrations, their instances, journals, subscriptions and convoys (REF-13)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.maintenance.check import check, find_violations
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.messagebox.orchestration_instances import HostOrchestrations, JournalEntry
from postroom.messagebox.orchestrations import read_orchestrations
from postroom.messagebox.subscriptions import ServiceSubscriptions, SubscribingService
from postroom.operations.orchestrations.states import unenlist
from tests.support.box import Box
from tests.support.databases import Databases
from tests.support.orchestrations import Key, Kind, apply_orchestrations, publish

CODE = """
@app.orchestration(activate=Kind == "order", convoy=[Key], correlations=[Replies], host="Default")
async def collect(order: Message) -> None:
    await Replies.of(order).receive()
"""

#: Statements that damage a MessageBox with one waiting instance, with the violated invariants.
DAMAGES = {
    "UPDATE services SET state = 'stopped'": {"wrong_service_subscriptions"},
    "UPDATE subscriptions SET state = 'stopped' WHERE service_name = 'collect'": {"wrong_service_subscriptions"},
    "UPDATE services SET version = 2": {"services_unlike_artifacts"},
    "UPDATE orchestrations SET is_newest = false": {"wrong_service_subscriptions"},
    "UPDATE orchestration_instances SET journal_length = 3": {"incomplete_orchestrations"},
    "UPDATE orchestration_instances SET journals = 1; DELETE FROM orchestration_journal WHERE number = 2": {
        "incomplete_orchestrations"
    },
    "DELETE FROM orchestration_journal WHERE number = 1": {"incomplete_orchestrations"},
    "DELETE FROM orchestration_journal": {"incomplete_orchestrations"},
    "UPDATE orchestration_messages SET consumed_in = 3": {"incomplete_orchestrations"},
    "UPDATE orchestration_messages SET consumed_in = NULL": {"incomplete_orchestrations"},
    "UPDATE orchestration_instances SET service_id = gen_random_uuid()": {"incomplete_orchestrations"},
    "UPDATE orchestration_instances SET claim_id = gen_random_uuid(), claimed_by = 4711": {"claims_of_dead_instances"},
    "UPDATE orchestration_instances SET instance_id = gen_random_uuid()": {
        "incomplete_orchestrations",
        "messages_without_reference",
        "subscriptions_without_orchestration",
        "wrong_part_ref_counts",
    },
    "DELETE FROM orchestration_messages": {
        "incomplete_orchestrations",
        "messages_without_reference",
        "subscriptions_without_orchestration",
        "wrong_part_ref_counts",
    },
    "UPDATE orchestration_messages SET message_id = gen_random_uuid()": {
        "incomplete_orchestrations",
        "messages_without_reference",
        "references_without_message",
        "wrong_part_ref_counts",
    },
    "UPDATE convoy_set_instances SET instance_id = gen_random_uuid()": {"subscriptions_without_orchestration"},
    "UPDATE subscriptions SET instance_id = gen_random_uuid() WHERE instance_id IS NOT NULL": {
        "subscriptions_without_orchestration"
    },
}


@pytest.fixture(scope="module")
def waiting(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """Yield a MessageBox with an instance of a convoy that waits. Tests do not change it."""
    with databases.open_box() as box:
        apply_orchestrations(box, tmp_path_factory.mktemp("application"), CODE)
        publish(box, "order", "")
        store_waiting_instance(box)
        run_all_jobs_once(box.connection)
        yield box


def store_waiting_instance(box: Box) -> None:
    """Store two persistence points, as a host does. No host runs."""
    procedures = HostOrchestrations("Default")
    [deployed] = read_orchestrations(box.connection)
    claim_id = uuid.uuid4()
    [claimed] = procedures.claim(
        box.connection, claim_id=claim_id, host_instance=1, limit=1, services=[deployed.service_id]
    )
    [message] = procedures.read_messages(box.connection, claim_id)
    for length, event in enumerate([{"kind": "started", "message": str(message.message_id)}, {"kind": "timer"}]):
        entry = JournalEntry(
            claimed=claimed,
            journal_length=length,
            turns=[{"time": "2026-01-01T00:00:00+00:00", "event": event, "commands": []}],
            consumed=[message.seq] if length == 0 else [],
            is_released=length == 1,
        )
        assert procedures.persist(box.connection, [entry]) == ({claimed.instance_id}, set())
    ServiceSubscriptions(box.host(), ServiceClass.ORCHESTRATIONS).wait(
        box.connection,
        SubscribingService(service_id=deployed.service_id, name=deployed.name),
        claimed.instance_id,
        (Kind == "reply") & (Key == "k"),
    )


def test_a_waiting_instance_has_no_violations(waiting: Box) -> None:
    assert check(waiting.connection) == []
    with waiting.connection.transaction(force_rollback=True):
        # continue_with: the journal is fresh, and its entries are numbered on.
        waiting.connection.execute("UPDATE orchestration_instances SET journals = 1, journal_length = 3")
        waiting.connection.execute("UPDATE orchestration_messages SET consumed_in = NULL")
        waiting.connection.execute("DELETE FROM orchestration_journal")
        assert find_violations(waiting.connection) == []


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_kind_of_damage_is_reported(waiting: Box, damage: str) -> None:
    with waiting.connection.transaction(force_rollback=True):
        waiting.connection.execute(damage)
        violations = {violation.invariant for violation in find_violations(waiting.connection)}
    assert violations == DAMAGES[damage]


def test_a_convoy_of_an_unenlisted_orchestration_belongs_to_an_instance(waiting: Box) -> None:
    with waiting.connection.transaction(force_rollback=True):
        unenlist(waiting.connection, "collect")
        # No subscription has its convoy set after a job has purged the removed ones.
        waiting.connection.execute("UPDATE subscriptions SET convoy_set_id = NULL WHERE removed_at IS NOT NULL")
        assert find_violations(waiting.connection) == []
        waiting.connection.execute("UPDATE convoy_set_instances SET instance_id = gen_random_uuid()")
        [violation] = find_violations(waiting.connection)
        assert violation.invariant == "subscriptions_without_orchestration"


def test_two_messages_that_activated_one_instance_are_a_violation(waiting: Box) -> None:
    with waiting.connection.transaction(force_rollback=True):
        waiting.connection.execute("UPDATE subscriptions SET convoy_set_id = NULL")
        columns = "message_id, subscription_id, enqueued_at, counted_in"
        waiting.connection.execute(
            f"INSERT INTO orchestration_messages (instance_id, seq, {columns})"
            f" SELECT instance_id, seq + 1000, {columns} FROM orchestration_messages"
        )
        violations = {violation.invariant for violation in find_violations(waiting.connection)}
        assert "duplicate_instances" in violations
