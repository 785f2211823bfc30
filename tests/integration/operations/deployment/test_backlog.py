"""A port or location with instances is removed only with a decision about them. An application can be removed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from postroom import Application, Property, adapters
from postroom.agent.direct.direct_agent import DirectAgent
from postroom.errors import DefinitionRefused, NotFound
from postroom.message import Message
from postroom.messagebox.configuration.applications import list_applications
from postroom.messagebox.configuration.hosts import find_host
from postroom.messagebox.connection import Connection
from postroom.messagebox.instances import InstanceQuery, InstanceState, count_states, list_instances
from postroom.messagebox.maintenance.check import find_violations
from postroom.messagebox.queues import QueueTask
from postroom.operations.deployment.apply import apply, plan, plan_removal, remove
from postroom.operations.deployment.backlog import Backlog, apply_backlog_decisions
from postroom.operations.deployment.plan import Action, ChangeKind
from postroom.operations.ports import send_ports
from postroom.ports.receive_locations import read_receive_locations
from postroom.ports.send_ports import read_send_ports
from postroom.up.deploy_and_supervise import deploy_and_supervise
from postroom.up.supervisor import SparkOptions, Supervisor
from tests.support import changes
from tests.support.contents import Contents
from tests.support.deployment import HOME, deploy, list_changes

Region = Property("Orders.Region", str)


def orders(*ports: str, location: str | None = "drop") -> Application:
    app = Application("orders")
    app.property(Region)
    if location is not None:
        app.receive_port("OrdersIn").location(location, adapters.File("in"))
    for name in ports:
        app.send_port(name, adapters.Null(), filter=Region == "EU")
    return app


@pytest.fixture
def backlog(connection: Connection) -> Iterator[Connection]:
    """Deploy Audit and C. Messages are queued for Audit, suspended for C, and one is ready to run for C."""
    deploy(connection, orders("Audit", "C"))
    publish(connection)
    send_ports.stop(connection, "C")
    for _ in range(3):
        publish(connection)
    yield connection
    assert find_violations(connection) == []


def publish(connection: Connection) -> None:
    DirectAgent(connection, find_host(connection, "Main")).publish([Message.of(b"{}", promoted={Region: "EU"})])


def count(connection: Connection, port: str) -> int:
    return sum(count_states(connection, InstanceQuery(port=port)).values())


def read_c_id(connection: Connection) -> uuid.UUID:
    return next(port.port_id for port in read_send_ports(connection) if port.name == "C")


def suspend_received(connection: Connection, task: QueueTask) -> uuid.UUID:
    """Turn a queued message into one that the location has received and that is suspended."""
    [location] = read_receive_locations(connection)
    [instance] = list_instances(connection, InstanceQuery(port="Audit", limit=1))
    changes.suspend(connection, instance.instance_id)
    Contents(connection).let_location_suspend(instance.instance_id, location.location_id, task)
    return instance.instance_id


def test_a_port_with_instances_is_not_removed_without_a_decision(backlog: Connection) -> None:
    without = orders("Audit").definition()
    planned = plan(backlog, without, home=HOME)
    [step] = planned.select(ChangeKind.SEND_PORT, Action.REMOVE)
    assert step.note == "is stopped and will be unenlisted; 4 instances (1 ready to run, 3 suspended)"
    [problem] = planned.problems
    assert problem.text == (
        "send port 'C' cannot be removed: it still has 4 instances (1 ready to run, 3 suspended). Decide what becomes"
        " of them with --backlog keep, reroute or terminate. If it has a new name, declare it there: renamed_from='C'."
    )
    with pytest.raises(DefinitionRefused, match="'C' cannot be removed: it still has 4 instances"):
        apply(backlog, without, home=HOME)
    assert {port.name for port in read_send_ports(backlog)} == {"Audit", "C"}
    kept = plan(backlog, without, home=HOME, backlog=Backlog.REROUTE)
    assert kept.problems == ()
    [step] = kept.select(ChangeKind.SEND_PORT, Action.REMOVE)
    assert step.note.endswith("4 instances (1 ready to run, 3 suspended) will be rerouted")


def test_a_port_without_instances_is_removed_without_a_decision(connection: Connection) -> None:
    deploy(connection, orders("Audit", "C"))
    assert ("remove", "send port", "C") in list_changes(deploy(connection, orders("Audit")))


def test_kept_instances_are_not_terminated_by_a_later_decision(backlog: Connection) -> None:
    deploy(backlog, orders("Audit"), backlog=Backlog.KEEP)
    assert apply_backlog_decisions(backlog, "orders") == []
    deploy(backlog, orders(), backlog=Backlog.TERMINATE)
    [settled] = apply_backlog_decisions(backlog, "orders")
    assert (settled.name, settled.decision, settled.count, settled.active) == ("Audit", Backlog.TERMINATE, 4, 0)
    assert (count(backlog, "Audit"), count(backlog, "C")) == (0, 4)


def test_active_instances_are_changed_by_the_next_apply(backlog: Connection) -> None:
    contents = Contents(backlog)
    [queued] = [row for row in contents.queued_rows() if row.port == "C"]
    contents.claim_row(queued.seq)
    deploy(backlog, orders("Audit"), backlog=Backlog.TERMINATE)
    [settled] = apply_backlog_decisions(backlog, "orders")
    assert (settled.count, settled.active) == (3, 1)
    contents.release_all()
    deploy(backlog, orders("Audit"))
    [settled] = apply_backlog_decisions(backlog, "orders")
    assert (settled.count, settled.active) == (1, 0)
    assert apply_backlog_decisions(backlog, "orders") == []
    assert count(backlog, "C") == 0


@pytest.mark.parametrize("task", [QueueTask.RECEIVE, QueueTask.PUBLISH])
def test_a_location_with_suspended_messages_needs_a_decision_too(backlog: Connection, task: QueueTask) -> None:
    instance_id = suspend_received(backlog, task)
    without = orders("Audit", "C", location=None)
    with pytest.raises(DefinitionRefused, match=r"location 'drop' cannot be removed: it still has 1 instance \(1 susp"):
        deploy(backlog, without)
    deploy(backlog, without, backlog=Backlog.REROUTE)
    [settled] = apply_backlog_decisions(backlog, "orders")
    assert (settled.name, settled.count) == ("drop", 1 if task is QueueTask.PUBLISH else 0)
    for name in ("drop", "OrdersIn"):
        [instance] = list_instances(backlog, InstanceQuery(port=name))
        assert (instance.instance_id, instance.service, instance.port) == (instance_id, "drop", "OrdersIn")
    expected = InstanceState.READY_TO_RUN if task is QueueTask.PUBLISH else InstanceState.SUSPENDED
    assert instance.state is expected, "only a pipeline can read a message that was not read yet"
    deploy(backlog, orders("Audit", "C"))
    [instance] = list_instances(backlog, InstanceQuery(port="drop"))
    assert not instance.service_removed


def test_an_application_is_removed_with_everything_that_it_declares(backlog: Connection) -> None:
    with pytest.raises(DefinitionRefused, match="The removal of the application 'orders' was refused: 2 problems"):
        remove(backlog, "orders", home=HOME)
    planned = plan_removal(backlog, "orders", home=HOME, backlog=Backlog.TERMINATE)
    assert planned.problems == ()
    removed = remove(backlog, "orders", home=HOME, backlog=Backlog.TERMINATE)
    assert removed.changes == planned.changes
    assert list_changes(removed) == {
        ("remove", "application", "orders"),
        ("remove", "receive port", "OrdersIn"),
        ("remove", "location", "drop"),
        ("remove", "send port", "Audit"),
        ("remove", "send port", "C"),
    }
    settled = apply_backlog_decisions(backlog, "orders")
    assert {(each.name, each.count) for each in settled} == {("Audit", 4), ("C", 4)}
    assert list_instances(backlog, InstanceQuery()) == []
    assert list_applications(backlog) == []
    assert read_send_ports(backlog) == []
    with pytest.raises(NotFound, match="no application 'orders'"):
        remove(backlog, "orders", home=HOME)
    deploy(backlog, orders("Audit", "C"))


def test_a_removed_application_that_is_applied_again_gets_its_kept_instances_back(backlog: Connection) -> None:
    before = read_c_id(backlog)
    remove(backlog, "orders", home=HOME, backlog=Backlog.KEEP)
    assert all(instance.service_removed for instance in list_instances(backlog, InstanceQuery()))
    [planned] = [step for step in deploy(backlog, orders("Audit", "C")).changes if step.name == "C"]
    assert planned.note == (
        "started, filter: Orders.Region == 'EU'; gets back 4 instances (1 ready to run, 3 suspended)"
    )
    assert read_c_id(backlog) == before
    assert not any(instance.service_removed for instance in list_instances(backlog, InstanceQuery()))
    assert count_states(backlog, InstanceQuery(port="C")) == {InstanceState.READY_TO_RUN: 4}


def test_a_change_of_the_definition_alone_is_described(connection: Connection) -> None:
    deploy(connection, orders("C"))
    changed = Application("orders")
    changed.property(Region)
    changed.receive_port("OrdersIn").location("drop", adapters.File("in"))
    changed.send_port("C", adapters.Null(), filter=Region == "EU", state="stopped")
    done = deploy(connection, changed)
    [step] = done.changes
    assert (step.kind, step.note) == (ChangeKind.APPLICATION, "only the stored definition; everything runs on")
    assert deploy(connection, changed).changes == (), "it is stored"
    [step, *_] = deploy(connection, orders("C", "D")).changes
    assert step.note == "1 of its objects, see below"


def test_up_carries_out_the_decision_too(backlog: Connection, database: str, tmp_path: Path) -> None:
    reports: list[str] = []
    definition = orders("Audit").definition()

    def deploy_again(decision: Backlog | None) -> AbstractContextManager[Supervisor]:
        return deploy_and_supervise(
            definition, tmp_path, database=database, spark=SparkOptions(), report=reports.append, backlog=decision
        )

    with pytest.raises(DefinitionRefused, match="'C' cannot be removed"), deploy_again(None):
        pass
    with deploy_again(Backlog.TERMINATE):
        assert reports[:2] == ["Removed: send port C", "4 instances of C terminated."]
    assert count(backlog, "C") == 0
