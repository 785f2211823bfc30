"""Applying applications with send port groups: changes, kept state, and rejected changes (SPT-09 … 12)."""

from __future__ import annotations

from typing import Any

import pytest

from postroom import Application, Property, adapters
from postroom.agent.direct.direct_agent import DirectAgent
from postroom.agent.routing.table import RoutingTable
from postroom.application import SendPortState
from postroom.errors import DefinitionRefused, PublishFailed
from postroom.message import Message
from postroom.messagebox.configuration.hosts import find_host
from postroom.messagebox.configuration.send_port_groups import SendPortGroup, read_send_port_groups
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import Connection
from postroom.operations.deployment.apply import plan
from postroom.operations.deployment.backlog import Backlog
from postroom.operations.deployment.plan import Action, ChangeKind
from postroom.operations.ports import groups
from postroom.operations.ports import send_ports as ports
from postroom.ports.send_ports import read_send_ports
from postroom.system_properties import BTS
from tests.support.contents import Contents
from tests.support.contents.counts import Countable
from tests.support.deployment import HOME, deploy

Region = Property("Orders.Region", str)


def orders(
    members: tuple[str, ...] | None = ("A", "B"),
    *,
    filter: Any = Region == "EU",
    state: SendPortState = "started",
    port_state: SendPortState = "started",
    ports: tuple[str, ...] = ("A", "B", "C"),
    priority: int = 5,
    description: str = "",
) -> Application:
    app = Application("orders")
    app.property(Region)
    for port in ports:
        app.send_port(port, adapters.Null(), state=port_state, priority=priority)
    if members is not None:
        app.send_port_group("G", members, filter=filter, state=state, description=description)
    return app


def find_problems(connection: Connection, app: Application) -> list[str]:
    """Return the problem of the plan. Check that apply reports the same problem and changes nothing."""
    planned = plan(connection, app.definition(), home=HOME).problems
    before = read_send_port_groups(connection)
    with pytest.raises(DefinitionRefused) as caught:
        deploy(connection, app)
    assert caught.value.problems == planned
    assert read_send_port_groups(connection) == before
    assert all(problem.file == __file__ and problem.line for problem in planned)
    return [problem.text for problem in planned]


def publish(connection: Connection, region: str = "EU") -> tuple[str, ...]:
    agent = DirectAgent(connection, find_host(connection, "Main"), RoutingTable())
    try:
        return agent.publish([Message.of(b"", promoted={Region: region})])[0].subscribers
    except PublishFailed:
        return ()


def read_group(connection: Connection) -> SendPortGroup:
    (group,) = read_send_port_groups(connection)
    return group


def test_a_first_apply_creates_the_group_and_routes_messages(connection: Connection) -> None:
    done = deploy(connection, orders())
    (step,) = done.select(ChangeKind.SEND_PORT_GROUP, Action.CREATE)
    assert (step.name, step.note) == ("G", "started, filter: Orders.Region == 'EU'; members: A, B")
    assert publish(connection) == ("A", "B")
    group = read_group(connection)
    assert (group.state, group.application) == (ServiceState.STARTED, "orders")
    agent = DirectAgent(connection, find_host(connection, "Main"))
    [published] = agent.publish([Message.of(b"", promoted={BTS.SPGroupID: str(group.group_id)})])
    assert published.subscribers == ("A", "B")
    assert deploy(connection, orders()).changes == ()


@pytest.mark.parametrize("state", ["bound", "stopped", "started"])
def test_a_new_group_gets_its_declared_state_and_keeps_the_state_that_an_operator_sets(
    connection: Connection, state: SendPortState
) -> None:
    deploy(connection, orders(state=state))
    assert read_group(connection).state is ServiceState[state.upper()]
    assert publish(connection) == (() if state == "bound" else ("A", "B"))
    if state == "started":
        groups.stop(connection, "G")
        (step,) = deploy(connection, orders(filter=Region == "US")).select(ChangeKind.SEND_PORT_GROUP, Action.CHANGE)
        assert step.note == "stays stopped"
        assert read_group(connection).state is ServiceState.STOPPED


def test_a_changed_group_filter_replaces_the_old_one_at_once(connection: Connection) -> None:
    deploy(connection, orders())
    publish(connection)
    group_id = read_group(connection).group_id
    (step,) = deploy(connection, orders(filter=Region == "US")).select(ChangeKind.SEND_PORT_GROUP, Action.CHANGE)
    assert [(difference.field, difference.before, difference.after) for difference in step.differences] == [
        ("filter", "Orders.Region == 'EU'", "Orders.Region == 'US'")
    ]
    assert (publish(connection, "EU"), publish(connection, "US")) == ((), ("A", "B"))
    assert read_group(connection).group_id == group_id
    assert _count_rows(connection, "queued") == 4, "messages queued by the old filter stay"


def test_a_changed_description_keeps_the_subscriptions(connection: Connection) -> None:
    deploy(connection, orders())
    before = [member.subscription_id for member in read_group(connection).members]
    (step,) = deploy(connection, orders(description="All of them")).select(ChangeKind.SEND_PORT_GROUP, Action.CHANGE)
    assert [difference.field for difference in step.differences] == ["description"]
    assert [member.subscription_id for member in read_group(connection).members] == before
    assert read_group(connection).definition["description"] == "All of them"


def test_a_changed_port_priority_applies_to_its_group_subscriptions(connection: Connection) -> None:
    deploy(connection, orders())
    deploy(connection, orders(priority=2))
    publish(connection)
    assert {row.priority for row in Contents(connection).queued_rows()} == {2}
    assert publish(connection) == ("A", "B")


def test_a_new_member_gets_its_subscription_at_once(connection: Connection) -> None:
    deploy(connection, orders())
    (step,) = deploy(connection, orders(("A", "B", "C"))).select(ChangeKind.SEND_PORT_GROUP, Action.CHANGE)
    assert [(difference.field, difference.before, difference.after) for difference in step.differences] == [
        ("members", "A, B", "A, B, C")
    ]
    assert publish(connection) == ("A", "B", "C")
    assert _count_rows(connection, "suspended") == 0


def test_a_new_port_can_be_a_member_in_the_same_apply(connection: Connection) -> None:
    deploy(connection, orders(("A",), ports=("A",)))
    deploy(connection, orders(("A", "B"), ports=("A", "B")))
    assert publish(connection) == ("A", "B")


def test_a_started_member_cannot_leave_its_group(connection: Connection) -> None:
    """SPT-12."""
    deploy(connection, orders())
    assert find_problems(connection, orders(("A",))) == [
        "send port group 'G': the started send port 'B' cannot be removed. Stop it first: postroom port stop 'B'"
    ]
    ports.stop(connection, "B")
    deploy(connection, orders(("A",)))
    assert publish(connection) == ("A",)
    assert dict(_read_states(connection))["B"] == ServiceState.STOPPED


def test_an_enlisted_group_keeps_an_enlisted_member(connection: Connection) -> None:
    """SPT-12, for a changed definition."""
    deploy(connection, orders(("A",)))
    ports.stop(connection, "A")
    for app in (orders(()), orders((), ports=("B", "C"))):
        (problem,) = find_problems(connection, app)
        assert "it is started and would lose its last enlisted member. Unenlist the group first" in problem
    deploy(connection, orders(("B",)))
    groups.unenlist(connection, "G")
    ports.stop(connection, "B")
    deploy(connection, orders(()))
    assert read_group(connection).members == ()


def test_a_group_without_an_enlisted_member_cannot_be_declared_started(connection: Connection) -> None:
    """SPT-11."""
    for app in (orders(()), orders(port_state="bound")):
        (problem,) = find_problems(connection, app)
        assert problem.startswith("send port group 'G': it cannot start: it has no enlisted member.")
    deploy(connection, orders(port_state="bound", state="stopped"))
    assert _count_rows(connection, "subscriptions") == 0


def test_removing_a_port_removes_its_membership(connection: Connection) -> None:
    """SPT-09: the port is unenlisted and leaves its groups in the same transaction. Its instances stay."""
    deploy(connection, orders())
    publish(connection)
    done = deploy(connection, orders(("A",), ports=("A", "C")), backlog=Backlog.KEEP)
    (step,) = done.select(ChangeKind.SEND_PORT, Action.REMOVE)
    assert (step.name, step.note) == ("B", "is started and will be unenlisted; 1 instance (1 ready to run) stays")
    assert publish(connection) == ("A",)
    assert _count_rows(connection, "queued") == 3
    # A port that is declared again has the same id and resumes its instances.
    deploy(connection, orders())
    assert publish(connection) == ("A", "B")


def test_removing_a_group_keeps_its_members_and_their_instances(connection: Connection) -> None:
    deploy(connection, orders())
    groups.stop(connection, "G")
    publish(connection)
    done = deploy(connection, orders(None))
    (step,) = done.select(ChangeKind.SEND_PORT_GROUP, Action.REMOVE)
    assert (step.name, step.note) == ("G", "is stopped and will be unenlisted; instances stay")
    assert read_send_port_groups(connection) == []
    assert publish(connection) == ()
    assert _count_rows(connection, "suspended by stopped ports") == 2
    # A group that is declared again has the same id and resumes its instances.
    deploy(connection, orders())
    assert _count_rows(connection, "suspended by stopped ports") == 0
    assert _count_rows(connection, "queued") == 2


def test_a_group_filter_with_another_property_type_is_a_problem(connection: Connection) -> None:
    deploy(connection, orders())
    app = Application("orders")
    other = Property("Orders.Region", int)
    app.property(other)
    for port in ("A", "B", "C"):
        app.send_port(port, adapters.Null())
    app.send_port_group("G", ["A", "B"], filter=other == 5)
    assert [text for text in find_problems(connection, app) if "filter" in text] == [
        "send port group 'G': the filter compares Orders.Region with values of type int, but it is deployed as str."
    ]


def test_the_disposition_of_messages_depends_on_group_and_member_states(connection: Connection) -> None:
    deploy(connection, orders())
    ports.stop(connection, "B")
    group = read_group(connection)
    assert {member.port_name: group.get_disposition(member).value for member in group.members} == {
        "A": "delivered",
        "B": "suspended",
    }


def test_a_port_cannot_change_between_static_and_dynamic(connection: Connection) -> None:
    """SPT-14."""

    def app(*, dynamic: bool, name: str = "Anywhere") -> Application:
        declared = Application("orders")
        if dynamic:
            declared.dynamic_send_port(name, folders=["out"])
        else:
            declared.send_port(name, adapters.Null())
        return declared

    deploy(connection, app(dynamic=True))
    (problem,) = find_problems(connection, app(dynamic=False))
    assert problem.startswith("send port 'Anywhere' is deployed as a dynamic one and cannot become static.")
    deploy(connection, app(dynamic=False, name="Other"))
    deploy(connection, app(dynamic=False))
    assert "static one and cannot become dynamic" in find_problems(connection, app(dynamic=True))[0]


def test_changed_folders_of_a_dynamic_port_keep_its_subscription(connection: Connection) -> None:
    def app(folders: list[str]) -> Application:
        declared = Application("orders")
        declared.dynamic_send_port("Anywhere", folders=folders)
        return declared

    deploy(connection, app(["out"]))
    before = [port.subscription_id for port in read_send_ports(connection)]
    (step,) = deploy(connection, app(["out", "other"])).select(ChangeKind.SEND_PORT, Action.CHANGE)
    assert [difference.field for difference in step.differences] == ["adapter folders"]
    assert [port.subscription_id for port in read_send_ports(connection)] == before
    assert deploy(connection, app(["out", "other"])).changes == ()


def _count_rows(connection: Connection, what: Countable) -> int:
    return Contents(connection).count(what)


def _read_states(connection: Connection) -> list[tuple[str, ServiceState]]:
    return [(port.name, port.state) for port in ports.list_ports(connection)]
