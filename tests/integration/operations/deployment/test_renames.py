"""A renamed port or location keeps its id, its state and its instances. A rename is done once."""

from __future__ import annotations

import pytest

from postroom import Application, Property, adapters
from postroom.agent.direct.direct_agent import DirectAgent
from postroom.agent.routing.table import RoutingTable
from postroom.errors import DefinitionRefused, NotFound
from postroom.message import Context, Message
from postroom.messagebox.configuration.hosts import find_host
from postroom.messagebox.configuration.send_port_groups import read_send_port_groups
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import Connection
from postroom.messagebox.instances import InstanceQuery, list_instances
from postroom.messagebox.intake import inbox
from postroom.messagebox.intake.location_progress import count_unfinished_files
from postroom.messagebox.maintenance.check import find_violations
from postroom.operations.deployment.apply import plan
from postroom.operations.deployment.backlog import Backlog
from postroom.operations.deployment.plan import Action, ChangeKind
from postroom.operations.instances.queries import check_names
from postroom.operations.ports import send_ports
from postroom.ports.receive_locations import read_receive_locations
from postroom.ports.send_ports import read_send_ports
from tests.support.contents import Contents
from tests.support.deployment import HOME, deploy, list_changes

Region = Property("Orders.Region", str)


def orders(*ports: str | tuple[str, str], group: bool = False, app_name: str = "orders") -> Application:
    """Return an application with these ports. A pair is a new name and the name that it is renamed from."""
    app = Application(app_name)
    app.property(Region)
    declared = []
    for port in ports:
        name, old = (port, None) if isinstance(port, str) else port
        declared.append(app.send_port(name, adapters.Null(), filter=Region == "EU", renamed_from=old))
    if group:
        app.send_port_group("All", declared, filter=Region == "all")
    return app


def read_ids(connection: Connection) -> dict[str, str]:
    return {port.name: str(port.port_id) for port in read_send_ports(connection)}


def publish(connection: Connection, routing: RoutingTable, region: str = "EU") -> tuple[str, ...]:
    agent = DirectAgent(connection, find_host(connection, "Main"), routing)
    return agent.publish([Message.of(b"{}", promoted={Region: region})])[0].subscribers


def test_a_renamed_port_keeps_its_id_state_and_subscription(connection: Connection) -> None:
    deploy(connection, orders("C"))
    routing = RoutingTable()
    assert publish(connection, routing) == ("C",)
    send_ports.stop(connection, "C")
    before = read_ids(connection)["C"]
    planned_steps = plan(connection, orders(("C2", "C")).definition(), home=HOME)
    [planned] = planned_steps.select(ChangeKind.SEND_PORT, Action.CHANGE)
    assert (planned.action, planned.note) == (Action.CHANGE, "renamed: its instances move with it; stays stopped")
    assert [(each.field, each.before, each.after) for each in planned.differences] == [("name", "C", "C2")]
    done = deploy(connection, orders(("C2", "C")))
    assert list_changes(done) == {("change", "application", "orders"), ("change", "send port", "C2")}
    assert read_ids(connection) == {"C2": before}
    assert [port.state for port in read_send_ports(connection)] == [ServiceState.STOPPED]
    assert publish(connection, routing) == ("C2",), "publishers see the new name"
    assert {instance.service for instance in list_instances(connection, InstanceQuery())} == {"C2"}
    with pytest.raises(NotFound) as not_found:
        check_names(connection, InstanceQuery(port="C"))
    assert not_found.value.hint == "It was renamed to 'C2'."
    assert find_violations(connection) == []


def test_a_second_apply_of_a_rename_changes_nothing(connection: Connection) -> None:
    deploy(connection, orders("C"))
    deploy(connection, orders(("C2", "C")))
    assert deploy(connection, orders(("C2", "C"))).changes == ()
    # On a MessageBox that never had the old name, the port is new.
    assert ("create", "send port", "D2") in list_changes(deploy(connection, orders(("D2", "D"), app_name="others")))


def test_two_ports_can_swap_their_names_once(connection: Connection) -> None:
    deploy(connection, orders("C", "D"))
    before = read_ids(connection)
    deploy(connection, orders(("C", "D"), ("D", "C")))
    assert read_ids(connection) == {"C": before["D"], "D": before["C"]}
    assert deploy(connection, orders(("C", "D"), ("D", "C"))).changes == ()
    assert read_ids(connection) == {"C": before["D"], "D": before["C"]}


def test_a_new_port_may_take_the_old_name(connection: Connection) -> None:
    deploy(connection, orders("C"))
    before = read_ids(connection)["C"]
    done = deploy(connection, orders(("C2", "C"), "C"))
    assert {("change", "send port", "C2"), ("create", "send port", "C")} <= list_changes(done)
    after = read_ids(connection)
    assert after["C2"] == before
    assert after["C"] != before
    assert deploy(connection, orders(("C2", "C"), "C")).changes == ()


def test_a_port_is_not_renamed_to_a_name_that_is_deployed(connection: Connection) -> None:
    deploy(connection, orders("C", "C2"))
    with pytest.raises(DefinitionRefused, match="'C2' cannot be renamed from 'C': both are deployed") as refused:
        deploy(connection, orders(("C2", "C")))
    assert len(refused.value.problems) == 1
    deploy(connection, orders("C2"))
    assert deploy(connection, orders(("C2", "C"))).changes[0].kind is ChangeKind.APPLICATION


def test_a_removed_port_that_had_another_name_gets_its_instances_back(connection: Connection) -> None:
    deploy(connection, orders("C"))
    send_ports.stop(connection, "C")
    publish(connection, RoutingTable())
    before = read_ids(connection)["C"]
    deploy(connection, orders(("C2", "C")))
    deploy(connection, orders(), backlog=Backlog.KEEP)
    deploy(connection, orders("C"))
    assert read_ids(connection)["C"] != before, "the messages are those of C2"
    deploy(connection, orders("C", "C2"))
    assert read_ids(connection)["C2"] == before


def test_a_new_port_takes_over_the_kept_instances_of_the_name_that_it_is_renamed_from(connection: Connection) -> None:
    deploy(connection, orders("C"))
    send_ports.stop(connection, "C")
    publish(connection, RoutingTable())
    before = read_ids(connection)["C"]
    deploy(connection, orders(), backlog=Backlog.KEEP)
    planned = plan(connection, orders(("C2", "C")).definition(), home=HOME)
    [step] = planned.select(ChangeKind.SEND_PORT, Action.CREATE)
    assert step.note.endswith("takes over 1 instance (1 suspended) of 'C'")
    assert deploy(connection, orders(("C2", "C"))).notes == ()
    assert read_ids(connection) == {"C2": before}
    [instance] = list_instances(connection, InstanceQuery())
    assert (instance.service, instance.service_removed) == ("C2", False)
    assert deploy(connection, orders(("C2", "C"))).changes == ()
    assert find_violations(connection) == []


def test_a_deployed_port_does_not_take_over_kept_instances_and_the_plan_says_so(connection: Connection) -> None:
    deploy(connection, orders("C"))
    publish(connection, RoutingTable())
    deploy(connection, orders("C2"), backlog=Backlog.KEEP)
    before = read_ids(connection)
    orphaned = "The send port 'C' was removed before and still has 1 instance (1 ready to run)."
    command = " Continue with: postroom instance reroute --all --port C --removed"
    assert plan(connection, orders("C2").definition(), home=HOME).notes == (orphaned + command,)
    done = deploy(connection, orders(("C2", "C")))
    assert done.notes == (f"{orphaned} 'C2' does not take them over, because it existed before.{command}",)
    assert read_ids(connection) == before


def test_a_name_that_is_declared_again_keeps_its_own_instances(connection: Connection) -> None:
    deploy(connection, orders("C"))
    publish(connection, RoutingTable())
    before = read_ids(connection)["C"]
    deploy(connection, orders(), backlog=Backlog.KEEP)
    deploy(connection, orders(("C2", "C"), "C"))
    assert read_ids(connection)["C"] == before


def test_a_renamed_member_stays_in_its_group(connection: Connection) -> None:
    deploy(connection, orders("C", group=True))
    done = deploy(connection, orders(("C2", "C"), group=True))
    assert list_changes(done) == {("change", "application", "orders"), ("change", "send port", "C2")}
    [group] = read_send_port_groups(connection)
    assert [member.port_name for member in group.members] == ["C2"]
    assert publish(connection, RoutingTable(), "all") == ("C2",)
    assert find_violations(connection) == []


def test_a_renamed_location_keeps_what_it_has_received(connection: Connection) -> None:
    def receiving(name: str, old: str | None = None) -> Application:
        app = Application("orders")
        app.receive_port("In").location(name, adapters.HttpReceive("/orders", port=8080), renamed_from=old)
        return app

    deploy(connection, receiving("web"))
    [location] = read_receive_locations(connection)
    Contents(connection).set_locations(enabled=False)
    inbox.store_in_inbox(connection, location.location_id, location.location_id, Context(), [b"{}"])
    with pytest.raises(DefinitionRefused, match="location 'web' cannot be removed: 1 received interchange"):
        deploy(connection, receiving("orders"))
    done = deploy(connection, receiving("orders", "web"))
    assert list_changes(done) == {("change", "application", "orders"), ("change", "location", "orders")}
    [renamed] = read_receive_locations(connection)
    assert (renamed.location_id, renamed.name, renamed.enabled) == (location.location_id, "orders", False)
    assert deploy(connection, receiving("orders", "web")).changes == ()


def receive(port: str, location: str = "drop", old: str | None = None) -> Application:
    app = Application("orders")
    app.receive_port(port, renamed_from=old).location(location, adapters.HttpReceive("/orders", port=18080))
    return app


def test_a_renamed_receive_port_keeps_its_locations_and_what_they_have_accepted(connection: Connection) -> None:
    """RCV-01: later messages have the new name in their context. An accepted interchange is not lost."""
    deploy(connection, receive("In"))
    [before] = read_receive_locations(connection)
    inbox.store_in_inbox(connection, before.location_id, before.location_id, Context(), [b"{}"])
    done = deploy(connection, receive("Orders", old="In"))
    [step] = done.select(ChangeKind.RECEIVE_PORT, Action.CHANGE)
    assert (step.name, step.note) == ("Orders", "renamed: its locations move with it")
    [after] = read_receive_locations(connection)
    assert (after.location_id, after.port_id, after.port_name) == (before.location_id, before.port_id, "Orders")
    assert count_unfinished_files(connection) == {after.location_id: 1}
    assert find_violations(connection) == []
    assert deploy(connection, receive("Orders", old="In")).changes == ()
    with pytest.raises(DefinitionRefused, match="renamed_from is its own name"):
        deploy(connection, receive("Orders", old="Orders"))


def test_a_receive_port_and_its_location_are_renamed_together(connection: Connection) -> None:
    deploy(connection, receive("In"))
    [before] = read_receive_locations(connection)
    app = Application("orders")
    app.receive_port("Orders", renamed_from="In").location(
        "web", adapters.HttpReceive("/orders", port=18080), renamed_from="drop"
    )
    deploy(connection, app)
    [after] = read_receive_locations(connection)
    assert (after.location_id, after.name, after.port_name) == (before.location_id, "web", "Orders")
    assert find_violations(connection) == []
