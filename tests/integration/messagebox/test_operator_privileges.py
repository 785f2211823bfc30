"""Operators read what they need and call functions that record them. They write no table, whatever SQL they use."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from postroom.errors import NotAllowed
from postroom.message import Message
from postroom.messagebox.audit import AuditEntry, list_audit
from postroom.messagebox.connection import Connection, connect
from postroom.operations.roles import grant_role
from tests.support.approved import AssertApproved
from tests.support.box import Box, Region

LOGIN = "postroom_test_olga"

#: The rights of a role and of PUBLIC on tables, columns, sequences and functions.
GRANTED = """
    WITH own AS (SELECT unnest(ARRAY['messagebox', 'management'])::regnamespace AS schema)
    SELECT concat_ws(' ', lower(g.privilege_type), c.oid::regclass) FROM own
      JOIN pg_class c ON c.relnamespace = own.schema CROSS JOIN aclexplode(c.relacl) g
     WHERE g.grantee IN (0, %(role)s::regrole)
    UNION ALL
    SELECT format('%%s %%s (%%s)', lower(g.privilege_type), c.oid::regclass, a.attname) FROM own
      JOIN pg_class c ON c.relnamespace = own.schema
      JOIN pg_attribute a ON a.attrelid = c.oid CROSS JOIN aclexplode(a.attacl) g
     WHERE g.grantee IN (0, %(role)s::regrole)
    UNION ALL
    SELECT format('execute %%s %%s', p.provolatile, p.oid::regprocedure) FROM own
      JOIN pg_proc p ON p.pronamespace = own.schema CROSS JOIN aclexplode(p.proacl) g
     WHERE g.grantee IN (0, %(role)s::regrole)
     ORDER BY 1
"""
EFFECTIVE = """
    SELECT c.oid::regclass::text, right_to FROM pg_class c, unnest('{INSERT,UPDATE,DELETE,TRUNCATE}'::text[]) right_to
     WHERE c.relnamespace IN ('messagebox'::regnamespace, 'management'::regnamespace) AND c.relkind IN ('r', 'p', 'v')
       AND (has_table_privilege(%(login)s, c.oid, right_to)
            OR right_to IN ('INSERT', 'UPDATE') AND has_any_column_privilege(%(login)s, c.oid, right_to))
"""
ORCHESTRATION = """
    INSERT INTO orchestrations (id, application_id, host_id, definition, is_newest)
    SELECT gen_random_uuid(), id, %s, '{"name": "ship", "version": 1, "ports": [["Shipping", "send"]]}', true
      FROM applications LIMIT 1
"""
#: It stores the measured load, and nothing that an operator chooses.
MEASURING = {"current_load"}
Call = Callable[[Box, Connection], Any]


@pytest.fixture
def olga(box: Box) -> Iterator[Connection]:
    """A connection of a login with the role of operators. There are a port, a group, a location, an orchestration and a
    message."""
    box.add_location()
    box.connection.execute(ORCHESTRATION, (box.host().host_id,))
    box.add_port("Europe", "Region == 'EU'")
    box.add_port("Ordered", "Region == 'EU'", ordered=True)
    box.agent().publish([Message.of(b"secret", promoted={Region: "EU"}) for _ in range(2)])
    box.connection.execute(f"CREATE ROLE {LOGIN} LOGIN")
    try:
        grant_role(box.connection, "operators", LOGIN)
        with connect(box.url, user=LOGIN) as connection:
            yield connection
    finally:
        box.connection.execute(f"DROP ROLE {LOGIN}")


def list_granted(box: Box) -> list[str]:
    role = f"postroom_{box.one('SELECT id FROM message_box')}_operators"
    return [right for (right,) in box.connection.execute(GRANTED, {"role": role})]


def read_new(box: Box, work: Callable[[], object]) -> list[AuditEntry]:
    before = {entry.entry_id for entry in list_audit(box.connection)}
    work()
    return [entry for entry in list_audit(box.connection) if entry.entry_id not in before]


def test_the_approved_rights_of_operators_are_current(box: Box, assert_approved: AssertApproved) -> None:
    granted = list_granted(box)
    assert {right.split()[0] for right in granted} == {"select", "execute"}
    assert_approved("\n".join(granted) + "\n", "operators.txt")


def test_an_operator_writes_no_table(box: Box, olga: Connection) -> None:
    assert box.connection.execute(EFFECTIVE, {"login": LOGIN}).fetchall() == []
    for statement in (
        "INSERT INTO management.audit (action, target) VALUES ('port.stop', 'Europe')",
        "INSERT INTO management.audit (login, action, target) VALUES ('boss', 'port.stop', 'Europe')",
        "UPDATE messagebox.services SET state = 'stopped'",
        "UPDATE management.receive_locations SET enabled = false",
        "UPDATE messagebox.hosts SET stopped = true",
        "DELETE FROM messagebox.suspended_queue",
        "SELECT terminate_instances(ARRAY(SELECT instance_id FROM instances))",
        "SELECT set_subscription_state(id, 'stopped') FROM subscriptions",
        "SELECT change_routing()",
    ):
        with pytest.raises(NotAllowed):
            olga.execute(statement)


def _read_id(olga: Connection, table: str) -> uuid.UUID:
    [(found, *_)] = olga.execute(f"SELECT id FROM {table} LIMIT 1").fetchall()
    assert isinstance(found, uuid.UUID)
    return found


def _start_operation(olga: Connection, kind: str) -> int:
    [(operation_id,)] = olga.execute(
        "SELECT start_operation(%s, 'a lie', ARRAY(SELECT instance_id FROM instances))", (kind,)
    ).fetchall()
    return int(operation_id)


#: A call of each function that changes something for operators.
CALLS: dict[str, Call] = {
    "start_or_stop_service": lambda _box, olga: olga.execute(
        "SELECT start_or_stop_service(%s, false, 10)", (_read_id(olga, "send_ports"),)
    ),
    "set_host_stopped": lambda box, olga: olga.execute(
        "SELECT set_host_stopped(%s::smallint, true)", (box.host().host_id,)
    ),
    "set_location_enabled": lambda _box, olga: olga.execute("SELECT set_location_enabled('drop', false)"),
    "set_location_schedule": lambda _box, olga: olga.execute(
        """SELECT set_location_schedule('drop', '{"window": ["08:00", "18:00"]}')"""
    ),
    "bind_logical_port": lambda _box, olga: olga.execute(
        "SELECT bind_logical_port('ship', 'Shipping', true, NULL, NULL)"
    ),
    "retry_now": lambda _box, olga: olga.execute("SELECT retry_now(%s)", (_read_id(olga, "send_ports"),)),
    "change_instances": lambda _box, olga: olga.execute(
        "SELECT change_instances('suspend', ARRAY(SELECT instance_id FROM instances LIMIT 1))"
    ),
    "skip_message": lambda _box, olga: olga.execute(
        "SELECT skip_message(instance_id, seq,"
        " gen_random_uuid()) FROM instances WHERE task = 'deliver_in_order' ORDER BY seq LIMIT 1"
    ),
    "start_operation": lambda _box, olga: _start_operation(olga, "suspend"),
    "continue_operation": lambda _box, olga: olga.execute(
        "SELECT continue_operation(%s, 10)", (_start_operation(olga, "terminate"),)
    ),
}


def test_calls_has_every_function_that_changes_something_for_operators(box: Box) -> None:
    changing = [right for right in list_granted(box) if right.startswith("execute v ")]
    names = {found for right in changing for found in re.findall(r"v (?:messagebox\.)?(\w+)\(", right)}
    assert names - MEASURING == set(CALLS)


@pytest.mark.parametrize("function", CALLS)
def test_a_function_that_an_operator_calls_with_plain_sql_names_the_login(
    box: Box, olga: Connection, function: str
) -> None:
    """Neither settings of the session nor another role hide who it was."""
    role = f"postroom_{box.one('SELECT id FROM message_box')}_operators"
    olga.execute("SELECT set_config('postroom.os_user', 'boss', false)")
    olga.execute(f"SET ROLE {role}")
    recorded = read_new(box, lambda: CALLS[function](box, olga))
    assert recorded
    assert {entry.login for entry in recorded} == {LOGIN}


def test_a_change_that_an_operator_rolls_back_is_neither_made_nor_recorded(box: Box, olga: Connection) -> None:
    def work() -> None:
        with olga.transaction(force_rollback=True):
            CALLS["set_location_enabled"](box, olga)

    assert read_new(box, work) == []
    assert box.one("SELECT enabled FROM receive_locations") is True


def test_the_pieces_of_an_operation_name_the_operator_and_the_instances(box: Box, olga: Connection) -> None:
    """The description of an operation is the operator's. The pieces record what was changed, also if a host does it."""
    ids = {str(instance) for (instance,) in box.connection.execute("SELECT instance_id FROM instances")}
    operation_id = _start_operation(olga, "terminate")
    [piece] = read_new(box, lambda: box.connection.execute("SELECT continue_operation(%s, 10)", (operation_id,)))
    assert (piece.login, piece.action, piece.target) == (LOGIN, "instance.terminate", f"operation {operation_id}")
    assert piece.after is not None
    assert set(piece.after["ids"]) == ids


def test_an_operator_cannot_start_what_is_not_enlisted(box: Box, olga: Connection) -> None:
    box.add_port("Bound", state="bound")
    box.add_group("All", ["Europe"], state="bound")
    for name in ("Bound", "All"):
        with pytest.raises(NotAllowed, match="is not enlisted"):
            olga.execute("SELECT start_or_stop_service((SELECT id FROM services WHERE name = %s), true, 10)", (name,))


def test_an_operator_cannot_store_the_start_of_a_port_as_an_operation(olga: Connection) -> None:
    with pytest.raises(NotAllowed, match="only the start of a port"):
        _start_operation(olga, "start")


@pytest.mark.parametrize(
    "column",
    [
        "carried FROM orchestration_instances",
        "turns FROM orchestration_journal",
        "properties FROM work_queue",
        "properties FROM scheduled_queue",
        "properties FROM suspended_queue",
        "reading FROM file_claims",
        "context FROM inbox",
        "body FROM inbox",
        "digest FROM inbox",
        "body FROM inbox_fragments",
        "body FROM stored_responses",
        "outcome FROM receipts",
        "context FROM spool",
        "body FROM parts",
        "body FROM fragments",
        "correlation_values FROM subscriptions",
        "definition FROM send_ports",
        "definition FROM receive_locations",
        "hosts FROM applications",
        "sink FROM sink_batches",
    ],
)
def test_an_operator_cannot_read_the_column(olga: Connection, column: str) -> None:
    with pytest.raises(NotAllowed):
        olga.execute(f"SELECT {column}")
