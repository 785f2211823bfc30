"""Applying applications: changes, kept state, and rejected changes. FLT-10, SPT-02, PRED-10, CTX-08."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from postroom import Application, Property, Retry, adapters, pipelines
from postroom.adapters import ReceiveDefinition
from postroom.agent.direct.direct_agent import DirectAgent
from postroom.agent.routing.table import RoutingTable
from postroom.application import SendPortState
from postroom.errors import DefinitionRefused, PublishFailed
from postroom.message import Context, Message
from postroom.messagebox.configuration.hosts import find_host, read_hosts
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.coordination.running_processes import read_routing_version
from postroom.messagebox.intake import inbox
from postroom.messagebox.intake.file_claims import FileClaimState
from postroom.operations.deployment import apply as apply_module
from postroom.operations.deployment.apply import apply, plan
from postroom.operations.deployment.artifacts import Comparison
from postroom.operations.deployment.backlog import Backlog
from postroom.operations.deployment.compare import compare
from postroom.operations.deployment.endpoints import SEND_PORTS
from postroom.operations.deployment.plan import Action, ChangeKind, Plan
from postroom.operations.ports import send_ports as ports
from postroom.ports.receive_locations import read_receive_locations
from postroom.ports.send_ports import read_send_ports
from postroom.properties import Property as AnyProperty
from postroom.system_properties import SYSTEM_PROPERTIES
from tests.support.contents import Contents
from tests.support.deployment import HOME, deploy, list_changes
from tests.support.waiting import wait_until

Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)


def orders(
    filter: Any = Region == "EU",
    *,
    name: str = "orders",
    ports: tuple[str, ...] = ("Europe",),
    state: SendPortState = "started",
    priority: int = 5,
    host: str = "Main",
    folder: str = "out",
    location: str | None = "drop",
    receive_port: str = "OrdersIn",
    enabled: bool = True,
) -> Application:
    app = Application(name)
    if host != "Main":
        app.host(host)
    app.property(Region, Total)
    if location is not None:
        app.receive_port(receive_port).location(
            location,
            adapters.File("in" if location == "drop" else f"in/{location}"),
            pipeline=pipelines.Json(promote={Region: "region"}),
            enabled=enabled,
        )
    for port in ports:
        own = folder if port == "Europe" else f"{folder}/{port}"
        app.send_port(port, adapters.File(own), filter=filter, state=state, priority=priority, host=host)
    return app


def publish(connection: Connection, region: str) -> tuple[str, ...]:
    host = find_host(connection, "Main")
    message = Message.of(b"{}", promoted={Region: region})
    try:
        return DirectAgent(connection, host, RoutingTable()).publish([message])[0].subscribers
    except PublishFailed:
        return ()


def read_value(connection: Connection, query: str, *parameters: object) -> Any:
    row = connection.execute(query, parameters).fetchone()
    assert row is not None
    return row[0]


def list_port_states(connection: Connection) -> Iterator[tuple[str, ServiceState]]:
    return ((port.name, port.state) for port in read_send_ports(connection))


def test_a_first_apply_creates_everything_and_routes_messages(connection: Connection) -> None:
    done = deploy(connection, orders())
    assert list_changes(done) == {
        ("create", "application", "orders"),
        ("create", "host", "Main"),
        ("create", "property", "system properties"),
        ("create", "property", "Orders.Region"),
        ("create", "property", "Orders.Total"),
        ("create", "receive port", "OrdersIn"),
        ("create", "location", "drop"),
        ("create", "send port", "Europe"),
    }
    (host,) = read_hosts(connection)
    assert (host.name, host.is_default) == ("Main", True)
    (location,) = read_receive_locations(connection)
    assert (location.port_name, location.uri, location.enabled) == ("OrdersIn", "file:///srv/orders/in", True)
    (port,) = read_send_ports(connection)
    assert (port.state, port.uri, port.settings.retry.count) == (ServiceState.STARTED, "file:///srv/orders/out", 3)
    assert Contents(connection).count("properties") == len(SYSTEM_PROPERTIES) + 2
    assert publish(connection, "EU") == ("Europe",)
    assert publish(connection, "US") == ()


def test_applying_an_unchanged_application_changes_nothing(connection: Connection) -> None:
    deploy(connection, orders())
    before = read_routing_version(connection)
    applied_at = Contents(connection).read_applied_at()
    again = deploy(connection, orders())
    assert again.changes == ()
    assert {step.name for step in again.steps} >= {"Europe", "drop", "OrdersIn", "Main"}
    assert read_routing_version(connection) == before
    assert Contents(connection).read_applied_at() == applied_at


def test_a_plan_shows_the_changes_and_changes_nothing(connection: Connection) -> None:
    planned = plan(connection, orders().definition(), home=HOME)
    assert Contents(connection).count("applications") == 0
    assert read_hosts(connection) == []
    assert planned == deploy(connection, orders())
    assert plan(connection, orders().definition(), home=HOME).changes == ()


def test_a_changed_filter_replaces_the_old_one_at_once(connection: Connection) -> None:
    deploy(connection, orders())
    assert publish(connection, "EU") == ("Europe",)
    before = read_send_ports(connection)[0]
    done = deploy(connection, orders(filter=Region == "US"))
    (step,) = done.select(ChangeKind.SEND_PORT, Action.CHANGE)
    (difference,) = step.differences
    assert (difference.field, difference.before, difference.after) == (
        "filter",
        "Orders.Region == 'EU'",
        "Orders.Region == 'US'",
    )
    after = read_send_ports(connection)[0]
    assert (after.port_id, after.transport_id, after.state) == (
        before.port_id,
        before.transport_id,
        ServiceState.STARTED,
    )
    assert after.subscription_id != before.subscription_id
    assert publish(connection, "US") == ("Europe",)
    assert publish(connection, "EU") == ()
    # Messages that were queued by the old filter stay in the queue (FLT-10, SUB-21).
    assert Contents(connection).count("queued") == 2
    assert Contents(connection).count("subscriptions") == 1


def test_a_stopped_port_stays_stopped_and_keeps_its_suspended_instances(connection: Connection) -> None:
    deploy(connection, orders())
    ports.stop(connection, "Europe")
    publish(connection, "EU")
    done = deploy(connection, orders(filter=Region == "US", priority=2))
    (step,) = done.select(ChangeKind.SEND_PORT, Action.CHANGE)
    assert step.note == "stays stopped"
    publish(connection, "US")
    assert Contents(connection).count("suspended by stopped ports") == 2
    assert ports.start(connection, "Europe").resumed == 2
    assert Contents(connection).count("queued") == 2
    assert [one.priority for one in Contents(connection).subscriptions()] == [2]


def test_an_unenlisted_port_stays_unenlisted(connection: Connection) -> None:
    deploy(connection, orders())
    ports.unenlist(connection, "Europe")
    deploy(connection, orders(filter=Region == "US"))
    assert dict(list_port_states(connection)) == {"Europe": ServiceState.BOUND}
    assert publish(connection, "US") == ()


@pytest.mark.parametrize("state", ["bound", "stopped", "started"])
def test_a_new_port_gets_its_declared_state(connection: Connection, state: SendPortState) -> None:
    deploy(connection, orders(state=state))
    assert dict(list_port_states(connection)) == {"Europe": ServiceState[state.upper()]}


def test_a_declared_state_does_not_overrule_the_operator(connection: Connection) -> None:
    deploy(connection, orders())
    done = deploy(connection, orders(state="stopped"))
    assert dict(list_port_states(connection)) == {"Europe": ServiceState.STARTED}
    (step,) = done.select(ChangeKind.SEND_PORT, Action.KEEP)
    assert step.note == "stays started"


def test_a_disabled_location_stays_disabled_when_it_changes(connection: Connection) -> None:
    deploy(connection, orders())
    Contents(connection).set_locations(enabled=False)
    done = deploy(connection, orders(receive_port="OtherIn"))
    assert ("change", "location", "drop") in list_changes(done)
    assert ("remove", "receive port", "OrdersIn") in list_changes(done)
    (location,) = read_receive_locations(connection)
    assert (location.port_name, location.enabled) == ("OtherIn", False)


def test_a_changed_adapter_or_retry_policy_keeps_the_subscription(connection: Connection) -> None:
    deploy(connection, orders())
    before = read_send_ports(connection)[0]
    version = read_routing_version(connection)
    app = orders(ports=())
    app.send_port("Europe", adapters.File("elsewhere"), filter=Region == "EU", retry=Retry(count=9, interval=1.5))
    done = deploy(connection, app)
    (step,) = done.select(ChangeKind.SEND_PORT, Action.CHANGE)
    assert {difference.field for difference in step.differences} == {
        "adapter path",
        "uri",
        "retry count",
        "retry interval",
    }
    after = read_send_ports(connection)[0]
    assert after.subscription_id == before.subscription_id
    assert after.settings.retry == Retry(count=9, interval=1.5)
    assert read_routing_version(connection) > version, "hosts must detect the change"


def test_a_removed_port_keeps_its_instances_until_it_is_declared_again(connection: Connection) -> None:
    deploy(connection, orders(ports=("Europe", "Audit")))
    ports.stop(connection, "Audit")
    publish(connection, "EU")
    done = deploy(connection, orders(ports=("Europe",)), backlog=Backlog.KEEP)
    assert list_changes(done) == {("change", "application", "orders"), ("remove", "send port", "Audit")}
    assert publish(connection, "EU") == ("Europe",)
    assert Contents(connection).count("suspended") == 1
    # A port that is declared again has the same id, so its suspended instances are resumed (SPT-08).
    deploy(connection, orders(ports=("Europe", "Audit")))
    assert Contents(connection).count("suspended") == 0
    assert Contents(connection).count("queued") == 3


def test_a_port_can_move_to_another_host(connection: Connection) -> None:
    deploy(connection, orders())
    publish(connection, "EU")
    done = deploy(connection, orders(host="Slow"))
    assert ("create", "host", "Slow") in list_changes(done)
    assert publish(connection, "EU") == ("Europe",)
    assert read_value(connection, "SELECT count(*) FROM main_q") == 1
    assert read_value(connection, "SELECT count(*) FROM slow_q") == 1
    assert [(host.name, host.is_default) for host in read_hosts(connection)] == [("Main", True), ("Slow", False)]


def test_host_names_are_not_case_sensitive(connection: Connection) -> None:
    deploy(connection, orders(host="Slow"))
    done = deploy(connection, orders(host="SLOW"))
    assert done.changes == () or list_changes(done) == {("change", "application", "orders")}
    assert len(read_hosts(connection)) == 2


def test_all_conflicts_with_the_messagebox_are_listed(connection: Connection) -> None:
    deploy(connection, orders(name="first"))
    other = Application("second")
    as_int: AnyProperty = Property("Orders.Region", int)
    other.property(as_int)
    other.receive_port("OrdersIn").location("drop", adapters.File("in"))
    other.send_port("Europe", adapters.File("out"), filter=as_int == 1)
    planned = plan(connection, other.definition(), home=HOME)
    texts = "\n".join(problem.text for problem in planned.problems)
    assert "receive port named 'OrdersIn'" in texts
    assert "location named 'drop'" in texts
    assert "send port named 'Europe'" in texts
    assert "Orders.Region has the type int here" in texts
    assert "the filter compares Orders.Region with values of type int, but it is deployed as str" in texts
    assert all(problem.file == __file__ and problem.line for problem in planned.problems)
    with pytest.raises(DefinitionRefused) as refused:
        apply(connection, other.definition(), home=HOME)
    assert refused.value.problems == planned.problems
    assert Contents(connection).count("applications") == 1


def test_a_property_keeps_its_type_after_it_is_no_longer_declared(connection: Connection) -> None:
    deploy(connection, orders())
    deploy(connection, Application("orders"))
    other = Application("second")
    other.property(Property("Orders.Total", int))
    (problem,) = plan(connection, other.definition(), home=HOME).problems
    assert "Orders.Total has the type int here, but is deployed as Decimal" in problem.text


def test_a_location_with_unpublished_files_is_not_removed(connection: Connection) -> None:
    deploy(connection, orders())
    [location] = read_receive_locations(connection)
    Contents(connection).add_file_claim(location.location_id)
    with pytest.raises(DefinitionRefused, match="1 received file is not published yet"):
        deploy(connection, orders(location=None))
    Contents(connection).change_file_claims(state=FileClaimState.PUBLISHED, path="/in/.postroom/kept/a.json")
    deploy(connection, orders(location=None))
    assert read_receive_locations(connection) == []


def test_a_location_with_a_filled_inbox_is_not_removed_and_keeps_its_adapter_kind(connection: Connection) -> None:
    def web(*adapter: ReceiveDefinition) -> Application:
        app = Application("web")
        for read_value in adapter:
            app.receive_port("WebIn").location("web", read_value)
        return app

    deploy(connection, web(adapters.HttpReceive("/orders", port=8080)))
    (location,) = read_receive_locations(connection)
    for _ in range(2):
        inbox.store_in_inbox(connection, location.location_id, uuid.uuid4(), Context(), [b"{}"])
    with pytest.raises(DefinitionRefused, match="cannot be removed: 2 received interchanges are"):
        deploy(connection, web())
    with pytest.raises(DefinitionRefused, match="cannot be changed to the kind 'file': 2 received interchanges"):
        deploy(connection, web(adapters.File("in")))
    deploy(connection, web(adapters.HttpReceive("/other", port=8080)))
    Contents(connection).delete_all("inbox")
    deploy(connection, web(adapters.File("in")))


def test_a_failed_apply_changes_nothing(connection: Connection) -> None:
    deploy(connection, orders())
    app = orders(filter=Region == "US", ports=("Europe", "New"), host="Another")
    definition = app.definition()
    Contents(connection).refuse_port("New")
    with pytest.raises(Exception, match="refuse"):
        apply(connection, definition, home=HOME)
    assert [host.name for host in read_hosts(connection)] == ["Main"]
    assert publish(connection, "EU") == ("Europe",)
    assert publish(connection, "US") == ()


def test_publishers_do_not_wait_while_an_application_is_compared(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that holds the routing lock and computes for seconds is ended as frozen."""
    deploy(connection, orders())
    is_free: list[bool] = []

    def compare_and_lock(*arguments: Any) -> Plan:
        with connect(database) as other:
            is_free.append(read_value(other, "SELECT pg_try_advisory_lock_shared(7001, 0)"))
            [location] = read_receive_locations(other)
            Contents(other).add_file_claim(location.location_id)  # a file that is received in the meantime
        return compare(*arguments)

    monkeypatch.setattr(apply_module, "compare", compare_and_lock)
    done = deploy(connection, orders(ports=("Europe", "New")))
    assert ("create", "send port", "New") in list_changes(done)
    assert is_free == [True]


def test_an_application_is_compared_again_if_the_deployment_has_changed(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []

    def compare_and_deploy(comparison: Comparison) -> Plan:
        compared.append(len(comparison.deployed.get(SEND_PORTS)))
        if len(compared) == 1:
            with connect(database) as other, pytest.MonkeyPatch.context() as original:
                original.setattr(apply_module, "compare", compare)
                deploy(other, orders(ports=("Europe", "New")))
        return compare(comparison)

    monkeypatch.setattr(apply_module, "compare", compare_and_deploy)
    done = deploy(connection, orders(ports=("Europe",)))
    assert compared == [0, 2]
    assert ("remove", "send port", "New") in list_changes(done)


def test_concurrent_applies_are_serialised(connection: Connection, database: str) -> None:
    applications = [orders(name="one", ports=("A", "B"), location="l1", receive_port="r1"), orders(name="one")]
    applications += [orders(name="two", ports=("C",), location="l2", receive_port="r2")]
    failures: list[BaseException] = []

    def run(app: Application) -> None:
        try:
            with connect(database) as own:
                deploy(own, app)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(app,)) for app in applications * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    names = {port.name for port in read_send_ports(connection)}
    assert names in ({"A", "B", "C"}, {"Europe", "C"})
    assert len(read_hosts(connection)) == 1


def test_an_apply_waits_for_publishes_in_progress(connection: Connection, database: str) -> None:
    """A publish that matched the old filter commits before the new filter is stored."""
    deploy(connection, orders())
    done = threading.Event()

    def change() -> None:
        deploy(own, orders(filter=Region == "US"))
        done.set()

    with connect(database) as publisher, connect(database) as own:
        with publisher.transaction():
            publisher.execute("SELECT lock_routing()")
            thread = threading.Thread(target=change)
            thread.start()
            waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            wait_until(lambda: read_value(connection, waiting), what="the apply to wait for the lock")
            assert not done.is_set()
        thread.join()
    assert done.is_set()


def test_routing_of_failures_follows_the_declaration(connection: Connection) -> None:
    """FMR-01: per receive port, for all its locations, and per send port."""

    def app(*, route_failures: bool) -> Application:
        declared = Application("orders")
        declared.receive_port("OrdersIn", route_failures=route_failures).location("drop", adapters.File("in"))
        declared.send_port("Europe", adapters.File("out"), route_failures=route_failures)
        return declared

    deploy(connection, app(route_failures=False))
    assert not read_receive_locations(connection)[0].route_failures
    assert not read_send_ports(connection)[0].settings.route_failures
    subscription = read_send_ports(connection)[0].subscription_id
    done = deploy(connection, app(route_failures=True))
    assert list_changes(done) == {
        ("change", "application", "orders"),
        ("change", "receive port", "OrdersIn"),
        ("change", "send port", "Europe"),
    }
    [difference] = next(step.differences for step in done.select(ChangeKind.RECEIVE_PORT, Action.CHANGE))
    assert (difference.field, difference.before, difference.after) == ("route failures", "False", "True")
    assert read_receive_locations(connection)[0].route_failures
    assert read_send_ports(connection)[0].settings.route_failures
    assert read_send_ports(connection)[0].subscription_id == subscription, "the subscription is unchanged"
    assert deploy(connection, app(route_failures=True)).changes == ()
