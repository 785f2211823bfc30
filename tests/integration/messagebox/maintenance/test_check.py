"""The invariants of a MessageBox (REF-13): each violation is reported with the name of the invariant."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from postroom.message import FRAGMENT_SIZE, Message
from postroom.messagebox.connection import connect
from postroom.messagebox.maintenance.check import _INVARIANTS, check, find_violations
from postroom.messagebox.maintenance.jobs import JOB_LOCK, run_all_jobs_once
from postroom.messagebox.statements import list_statements
from tests.support.box import Box, Region
from tests.support.databases import Databases

#: Statements that damage a valid MessageBox, with the violated invariants.
DAMAGES = {
    "DELETE FROM work_queue WHERE seq = (SELECT min(seq) FROM work_queue)": {
        "messages_without_reference",
        "wrong_part_ref_counts",
    },
    "UPDATE message_ref_count_log_totals SET total = -1": {"negative_ref_counts"},
    "UPDATE message_ref_count_log_totals SET total = 2": {"wrong_message_ref_counts"},
    "UPDATE part_ref_count_log_totals SET total = 2": {"wrong_part_ref_counts"},
    "UPDATE part_ref_count_log_totals SET total = -1": {"negative_ref_counts"},
    "DELETE FROM message_ref_count_log_totals": {"messages_without_ref_count"},
    "DELETE FROM spool": {"references_without_message", "wrong_part_ref_counts"},
    "UPDATE spool SET only_reference = false": {"messages_without_ref_count"},
    "UPDATE spool SET only_reference = true": {"wrong_message_ref_counts"},
    "UPDATE parts SET only_reference = false": {"wrong_part_ref_counts"},
    "UPDATE parts SET only_reference = true": {"wrong_part_ref_counts"},
    "DELETE FROM parts WHERE body IS NOT NULL": {"messages_without_part", "wrong_part_ref_counts"},
    "DELETE FROM fragments WHERE number = 1": {"incomplete_parts"},
    "UPDATE parts SET body = body || 'x' WHERE body IS NOT NULL": {"incomplete_parts"},
    "INSERT INTO fragments VALUES (gen_random_uuid(), 0, 'x')": {"fragments_without_part"},
    "INSERT INTO parts VALUES (gen_random_uuid(), 'body', 'text/plain', NULL, 1, 'x')": {"parts_without_message"},
    "INSERT INTO predicates (predicate_table, group_id, property_id, operator) VALUES (4, -1, 1, 6)": {
        "predicates_without_group"
    },
    "DELETE FROM predicates": {"incomplete_groups"},
    "UPDATE services SET state = 'stopped' WHERE kind = 'send port'": {"wrong_service_subscriptions"},
    "UPDATE subscriptions SET removed_at = now() WHERE group_id IS NULL": {"wrong_service_subscriptions"},
    "UPDATE subscriptions SET state = 'stopped' WHERE group_id IS NOT NULL": {"wrong_service_subscriptions"},
    "UPDATE services SET state = 'bound' WHERE kind = 'send port group'": {"wrong_service_subscriptions"},
    "UPDATE services SET name = 'Other' WHERE kind = 'send port'": {"services_unlike_artifacts"},
    "UPDATE services SET host_id = NULL WHERE kind = 'send port'": {"services_unlike_artifacts"},
    "DELETE FROM services WHERE kind = 'send port group'": {"services_unlike_artifacts"},
    "DELETE FROM send_port_groups": {"services_unlike_artifacts"},
    "INSERT INTO lookup_contents (service_id, key_property, key_type) SELECT id, 'Orders.Region', 1 FROM services"
    " WHERE kind = 'send port' LIMIT 1": {"wrong_lookups"},
    "INSERT INTO message_properties (batch_id, message_id, property_id) VALUES ("
    " gen_random_uuid(), gen_random_uuid(), 1)": {"transient_rows_left_behind"},
    "INSERT INTO message_predicates VALUES (gen_random_uuid(), gen_random_uuid(), 'key', 'value')": {
        "transient_rows_left_behind"
    },
    "UPDATE work_queue SET claim_id = gen_random_uuid(), claimed_by = 4711": {"claims_of_dead_instances"},
    "INSERT INTO default_q_scheduled (seq, host_id, message_id, service_class, service_id, instance_id, priority,"
    " enqueued_at, valid_from, state, paused, counted_in) SELECT seq, host_id, message_id, 'messaging_in_process',"
    " service_id, gen_random_uuid(), 5, now(), 'infinity', 'scheduled', true, counted_in FROM work_queue": {
        "paused_without_circuit",
        "wrong_message_ref_counts",
        "wrong_part_ref_counts",
    },
    "ALTER TABLE file_claims DROP CONSTRAINT file_claims_location;"
    " INSERT INTO file_claims (interchange_id, location_id, name, path)"
    " VALUES (gen_random_uuid(), gen_random_uuid(), 'a', 'in/a')": {"intake_without_location"},
    "ALTER TABLE inbox DROP CONSTRAINT inbox_location;"
    " INSERT INTO inbox (interchange_id, location_id, context, size)"
    " VALUES (gen_random_uuid(), gen_random_uuid(), '{}', 0)": {"intake_without_location"},
    "INSERT INTO orchestration_instances (instance_id, host_id, service_id, priority, created_at)"
    " VALUES (gen_random_uuid(), 1, gen_random_uuid(), 5, now())": {"incomplete_orchestrations"},
    "INSERT INTO orchestration_journal (instance_id, number, turns) VALUES (gen_random_uuid(), 1, '[]')": {
        "incomplete_orchestrations"
    },
    "INSERT INTO orchestration_instances (instance_id, host_id, service_id, priority, created_at, claim_id, claimed_by)"
    " VALUES (gen_random_uuid(), 1, gen_random_uuid(), 5, now(), gen_random_uuid(), 4711)": {
        "incomplete_orchestrations",
        "claims_of_dead_instances",
    },
    "WITH o AS (INSERT INTO services (id, kind, application, name, port_name, version, host_id)"
    " VALUES (gen_random_uuid(), 'orchestration', 't', 'o', 'o', 1, 1) RETURNING id)"
    " INSERT INTO subscriptions (host_id, service_class, service_id, service_name, instance_id, correlation_type_id,"
    " correlation_values, correlation_hash) SELECT 1, 'orchestrations', id, 'o', gen_random_uuid(), 1, '{}',"
    " 0 FROM o": {
        "services_unlike_artifacts",
        "subscriptions_without_orchestration",
    },
    "INSERT INTO default_q (host_id, message_id, service_class, instance_id, priority)"
    " SELECT 1, message_id, 'messaging_in_process', instance_id, 5 FROM work_queue": {
        "duplicate_instances",
        "wrong_message_ref_counts",
        "wrong_part_ref_counts",
    },
}


@pytest.fixture(scope="module")
def loaded(databases: Databases) -> Iterator[Box]:
    """Yield a MessageBox with a small and a large message in a queue, whose references are in the totals, and a small
    one that its row counts. Tests do not change it."""
    with databases.open_box() as box:
        box.add_port("Europe", "Orders.Region == 'EU'")
        box.add_group("Everyone", ["Europe"], "Orders.Region == 'nowhere'")
        box.agent().publish([Message.of(b"x" * size, promoted={Region: "EU"}) for size in (10, 3 * FRAGMENT_SIZE)])
        box.connection.execute("SELECT int_count_in_logs(array_agg(message_id)) FROM spool")
        run_all_jobs_once(box.connection)
        box.agent().publish([Message.of(b"x", promoted={Region: "EU"})])
        yield box


def test_a_valid_messagebox_has_no_violations(loaded: Box) -> None:
    assert check(loaded.connection) == []


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_kind_of_damage_is_reported(loaded: Box, damage: str) -> None:
    with loaded.connection.transaction(force_rollback=True):
        loaded.connection.execute(damage)
        violations = {violation.invariant: violation for violation in find_violations(loaded.connection)}
    assert set(violations) == DAMAGES[damage]
    for violation in violations.values():
        assert violation.count == len(violation.examples) > 0
        assert violation.problem
        assert violation.hint


def test_every_invariant_has_a_statement_and_a_test() -> None:
    names = {invariant.name for invariant in _INVARIANTS}
    assert {f"checks/{name}" for name in names} == set(list_statements("checks"))
    assert set().union(*DAMAGES.values()) == names


def test_the_examples_are_limited_and_the_count_is_not(loaded: Box) -> None:
    with loaded.connection.transaction(force_rollback=True):
        loaded.connection.execute("INSERT INTO fragments SELECT gen_random_uuid(), 0, 'x' FROM generate_series(1, 25)")
        (violation,) = find_violations(loaded.connection)
    assert (violation.count, len(violation.examples)) == (25, 10)


def test_a_dead_instance_is_reported_only_after_the_jobs_had_time_to_detect_it(loaded: Box) -> None:
    connection = loaded.connection
    with connection.transaction(force_rollback=True):
        dead = loaded.one("INSERT INTO host_instances (host_id, server, pid) VALUES (1, 'gone', 1) RETURNING id")
        connection.execute("UPDATE work_queue SET claim_id = gen_random_uuid(), claimed_by = %s", (dead,))
        assert find_violations(connection) == []
        connection.execute("UPDATE host_instances SET dead_since = now() - interval '10 s'")
        assert find_violations(connection) == []
        connection.execute("UPDATE host_instances SET dead_since = now() - interval '2 min'")
        assert [violation.invariant for violation in find_violations(connection)] == ["claims_of_dead_instances"]


def test_uncommitted_changes_are_not_reported(loaded: Box) -> None:
    with connect(loaded.url) as publisher, publisher.transaction(force_rollback=True):
        loaded.agent(connection=publisher).publish([Message.of(b"x", promoted={Region: "EU"})])
        assert check(loaded.connection) == []
    assert check(loaded.connection) == []


def test_check_does_not_wait_for_running_jobs(loaded: Box) -> None:
    with connect(loaded.url) as jobs, connect(loaded.url) as connection:
        jobs.execute("SELECT pg_advisory_lock(%s, %s)", JOB_LOCK)
        connection.execute("SET lock_timeout = '5s'")
        assert check(connection) == []


def test_check_changes_neither_data_nor_the_connection(loaded: Box) -> None:
    check(loaded.connection)
    assert loaded.one("SHOW transaction_isolation") == "read committed"
    assert loaded.one("SHOW transaction_read_only") == "off"
