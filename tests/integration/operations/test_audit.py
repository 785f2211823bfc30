"""Every action of an operator is recorded in its own transaction: who, when, what, why, before and after."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from postroom import Application, Schedule, adapters, pipelines
from postroom.application.retry import Retry
from postroom.errors import NotAllowed, StateError
from postroom.message import Message
from postroom.messagebox.audit import AuditEntry, list_audit, set_reason
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.instances import InstanceQuery
from postroom.operations.all_or_none import all_or_none
from postroom.operations.deployment.apply import apply, remove
from postroom.operations.instances.changes import resume_with_body
from postroom.operations.jobs import repair_messagebox
from postroom.operations.ports import groups, receive_locations, send_ports
from postroom.operations.roles import grant_role, revoke_role
from postroom.ports.receive_locations import read_receive_locations
from tests.support import changes
from tests.support.box import Box, Region
from tests.support.contents import Contents


def read_new(box: Box, work: Callable[[], object]) -> list[AuditEntry]:
    """Return the entries that ``work`` adds, the first first."""
    before = {entry.entry_id for entry in list_audit(box.connection)}
    work()
    return [entry for entry in reversed(list_audit(box.connection)) if entry.entry_id not in before]


def summarise(entries: list[AuditEntry]) -> list[tuple[str, str]]:
    return [(entry.action, entry.target) for entry in entries]


def test_changes_of_ports_and_groups_are_recorded_with_their_states(box: Box) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'", state="stopped")
    box.add_group("All", ["Europe"], "Orders.Region == 'EU'", state="stopped")
    for module, noun, name in ((send_ports, "port", "Europe"), (groups, "group", "All")):
        [started] = read_new(box, lambda module=module, name=name: module.start(box.connection, name))  # type: ignore[misc]
        assert (started.action, started.target) == (f"{noun}.start", name)
        assert (started.before, started.after) == ({"state": "stopped"}, {"state": "started"})
        assert started.login == box.one("SELECT session_user")
        assert started.reason is None


def test_changes_of_locations_are_recorded(box: Box) -> None:
    box.add_location()
    schedule = Schedule(window=("08:00", "18:00"))

    def work() -> None:
        receive_locations.disable(box.connection, "drop")
        receive_locations.set_schedule(box.connection, "drop", schedule)

    recorded = read_new(box, work)
    assert summarise(recorded) == [("location.disable", "drop"), ("location.schedule", "drop")]
    assert recorded[1].before == {"schedule": "always"}
    assert recorded[1].after == {"schedule": schedule.model_dump(mode="json")}


def test_changes_of_instances_are_recorded_with_the_reason(box: Box) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.agent().publish([Message.of(b"x", promoted={Region: "EU"}) for _ in range(3)])
    first = box.instances()[0].instance_id
    set_reason(box.connection, "ticket 7")

    def work() -> None:
        changes.suspend(box.connection, first)
        resume_with_body(box.connection, first, b"corrected")
        changes.suspend_all(box.connection, InstanceQuery())
        changes.terminate_all(box.connection, InstanceQuery())

    suspended, resumed, *many = read_new(box, work)
    assert (suspended.action, suspended.target) == ("instance.suspend", str(first))
    assert suspended.before == {"state": "ready to run", "service": "Europe", "error_code": None}
    assert suspended.after == {"state": "suspended"}
    assert resumed.action == "instance.resume-with-body"
    assert [entry.action for entry in many] == ["instance.suspend"] * 2 + ["instance.terminate"] * 2
    assert {entry.reason for entry in (suspended, resumed, *many)} == {"ticket 7"}
    requested, carried_out, *_ = (entry.after for entry in many)
    assert requested is not None
    assert requested["chosen"] == 3
    assert carried_out is not None
    assert carried_out["instances"] == len(carried_out["ids"]) == 3


def test_deployments_are_recorded_with_their_differences(box: Box, tmp_path: Path) -> None:
    box.delete_all("applications")

    def build(count: int) -> Application:
        app = Application("orders")
        app.property(Region)
        app.send_port("Europe", adapters.Null(), filter=Region == "EU", retry=Retry(count=count))
        return app

    def deploy(count: int) -> None:
        apply(box.connection, build(count).definition(), home=tmp_path)

    assert summarise(read_new(box, lambda: deploy(1))) == [("application.apply", "orders")]
    [changed] = read_new(box, lambda: deploy(2))
    assert changed.before == {"send port Europe": {"retry count": "1"}}
    assert changed.after is not None
    assert changed.after["send port Europe"] == {"action": "change", "retry count": "2"}
    assert read_new(box, lambda: deploy(2)) == []
    removed = read_new(box, lambda: remove(box.connection, "orders", home=tmp_path))
    assert summarise(removed) == [("application.remove", "orders")]


def test_roles_and_repairs_are_recorded(box: Box) -> None:
    box.connection.execute("CREATE ROLE postroom_test_audit LOGIN")

    def work() -> None:
        grant_role(box.connection, "operators", "postroom_test_audit")
        revoke_role(box.connection, "operators", "postroom_test_audit")
        repair_messagebox(box.connection)

    try:
        recorded = read_new(box, work)
    finally:
        box.connection.execute("DROP ROLE postroom_test_audit")
    assert summarise(recorded) == [
        ("role.grant", "postroom_test_audit"),
        ("role.revoke", "postroom_test_audit"),
        ("messagebox.repair", "messagebox"),
    ]


def test_an_action_that_is_rolled_back_is_not_recorded(box: Box) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'", state="stopped")
    box.add_port("Asia", "Orders.Region == 'AS'")

    def work() -> None:
        with pytest.raises(StateError):
            all_or_none(box.connection, ["Europe", "Asia"], send_ports.start)

    assert read_new(box, work) == []


def test_the_audit_is_append_only_for_operators_and_administrators(box: Box) -> None:
    box.add_location()
    login = "postroom_test_auditor"
    box.connection.execute(f"CREATE ROLE {login} LOGIN")
    try:
        for role in ("operators", "administrators"):
            grant_role(box.connection, role, login)
            with connect(box.url, user=login) as connection:
                [disabled] = read_new(box, lambda connection=connection: _toggle(connection))  # type: ignore[misc]
                assert disabled.login == login
                assert not Contents(connection).can_change("audit")
                for forged in ({"login": "boss"}, {"recorded_at": datetime.now(UTC)}):
                    with pytest.raises(NotAllowed):
                        Contents(connection).add_audit_entry(**forged)
    finally:
        box.connection.execute(f"DROP ROLE {login}")


def _toggle(connection: Connection) -> None:
    [location] = read_receive_locations(connection)
    (receive_locations.disable if location.enabled else receive_locations.enable)(connection, "drop")


def test_entries_are_selected_by_action_target_login_and_time(box: Box) -> None:
    box.add_location(pipelines.PassThrough())
    box.add_port("Europe", "Orders.Region == 'EU'", state="stopped")
    send_ports.start(box.connection, "Europe")
    receive_locations.disable(box.connection, "drop")
    login = str(box.one("SELECT session_user"))
    assert summarise(list_audit(box.connection, action="location")) == [("location.disable", "drop")]
    assert summarise(list_audit(box.connection, action="port.start")) == [("port.start", "Europe")]
    assert summarise(list_audit(box.connection, target="drop")) == [("location.disable", "drop")]
    assert list_audit(box.connection, login="nobody") == []
    assert len(list_audit(box.connection, login=login, limit=1)) == 1
    latest = list_audit(box.connection)[0]
    assert list_audit(box.connection, since=latest.recorded_at) == [latest]
    assert latest not in list_audit(box.connection, until=latest.recorded_at)
