"""Suspended messages of a removed or renamed port: they are rerouted or delivered once, and none is lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from postroom import Application, Property, adapters
from postroom.agent.direct.direct_agent import DirectAgent
from postroom.application import ApplicationDefinition
from postroom.hosts import HostInstance
from postroom.message import Message
from postroom.messagebox import instance_operations
from postroom.messagebox.configuration.hosts import find_host
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.instance_operations import BulkOperation, get_operation
from postroom.messagebox.instances import InstanceQuery, InstanceState, count_states, list_instances
from postroom.messagebox.maintenance.check import find_violations
from postroom.messagebox.queues import QueueTask
from postroom.operations.deployment.apply import apply
from postroom.operations.deployment.backlog import Backlog, apply_backlog_decisions
from postroom.operations.instances.advice import get_advice
from postroom.operations.ports import send_ports
from tests.integration.hosts.conftest import SETTINGS
from tests.support import changes
from tests.support.contents import Contents
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

Region = Property("Orders.Region", str)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    with connect(database) as opened:
        yield opened


def build_orders(
    *ports: str, renamed_from: Mapping[str, str] | None = None, filters: Mapping[str, str] | None = None
) -> ApplicationDefinition:
    """Return an application with an Audit port for all messages, and other ports for messages of the EU."""
    app = Application("orders")
    app.property(Region)
    app.send_port("Audit", adapters.Null(), filter=Region.exists())
    for name in ports:
        text = (filters or {}).get(name, "Orders.Region == 'EU'")
        app.send_port(name, adapters.Null(), filter=text, renamed_from=(renamed_from or {}).get(name))
    return app.definition()


def publish(connection: Connection, count: int, region: str = "EU") -> None:
    agent = DirectAgent(connection, find_host(connection, "Main"))
    for start in range(0, count, 100):
        numbers = range(start, min(start + 100, count))
        agent.publish([Message.of(str(number).encode(), promoted={Region: region}) for number in numbers])


def run_host(connection: Connection, database: str, home: Path) -> RecordingAdapter:
    """Run a host until nothing is left that it can do. Return what its ports sent."""
    recorder = RecordingAdapter()
    waiting = InstanceQuery(states=[InstanceState.READY_TO_RUN, InstanceState.ACTIVE, InstanceState.RETRYING])
    with HostInstance(database, "Main", home, settings=SETTINGS, as_role=True, build_adapter=recorder.build):
        wait_until(lambda: not count_states(connection, waiting), what="everything was processed")
    return recorder


def list_sent(recorder: RecordingAdapter, port: str) -> list[bytes]:
    return sorted(sent.body for sent in recorder.sent if sent.port == port)


def expected(count: int) -> list[bytes]:
    return sorted(str(number).encode() for number in range(count))


def suspend_for_stopped_port(connection: Connection, database: str, home: Path, count: int) -> None:
    """Deploy Audit and C, stop C, and publish messages that Audit gets and that are suspended for C."""
    apply(connection, build_orders("C"), home=home)
    send_ports.stop(connection, "C")
    publish(connection, count)
    assert list_sent(run_host(connection, database, home), "Audit") == expected(count)
    assert count_states(connection, InstanceQuery(port="C")) == {InstanceState.SUSPENDED: count}


def test_the_suspended_messages_of_a_renamed_port_belong_to_the_new_name(
    connection: Connection, database: str, home: Path
) -> None:
    suspend_for_stopped_port(connection, database, home, 500)
    apply(connection, build_orders("C2", renamed_from={"C2": "C"}), home=home)
    assert count_states(connection, InstanceQuery(port="C2")) == {InstanceState.SUSPENDED: 500}
    assert list_sent(run_host(connection, database, home), "C2") == [], "the port stays stopped"
    send_ports.start(connection, "C2")
    recorder = run_host(connection, database, home)
    assert list_sent(recorder, "C2") == expected(500)
    assert list_sent(recorder, "Audit") == []
    assert find_violations(connection) == []


def test_the_suspended_messages_of_a_removed_port_are_rerouted_to_the_new_port_once(
    connection: Connection, database: str, home: Path
) -> None:
    suspend_for_stopped_port(connection, database, home, 500)
    apply(connection, build_orders("C2"), home=home, backlog=Backlog.REROUTE)
    [settled] = apply_backlog_decisions(connection, "orders")
    assert (settled.name, settled.count, settled.active) == ("C", 500, 0)
    assert apply_backlog_decisions(connection, "orders") == []
    recorder = run_host(connection, database, home)
    assert list_sent(recorder, "C2") == expected(500)
    assert list_sent(recorder, "Audit") == [], "it got them when they were published"
    assert list_instances(connection, InstanceQuery()) == []
    assert find_violations(connection) == []


def test_a_message_without_a_new_subscriber_stays_suspended_with_the_reason(
    connection: Connection, database: str, home: Path
) -> None:
    suspend_for_stopped_port(connection, database, home, 3)
    apply(connection, build_orders(), home=home, backlog=Backlog.KEEP)
    assert changes.reroute_all(connection, InstanceQuery(port="C")).total() == 3
    assert run_host(connection, database, home).sent == []
    instances = list_instances(connection, InstanceQuery(port="C"))
    expected_row = ("ROUTING", QueueTask.REROUTE, "C")
    assert [(each.error_code, each.task, each.service) for each in instances] == [expected_row] * 3
    assert "it was routed to every subscription that matches it before" in instances[0].reason
    assert len(list_instances(connection, InstanceQuery())) == 3, "no report about each of them"
    apply(connection, build_orders("C2"), home=home)
    assert changes.resume_all(connection, InstanceQuery(port="C")) == 3
    recorder = run_host(connection, database, home)
    assert (list_sent(recorder, "C2"), list_sent(recorder, "Audit")) == (expected(3), [])


def test_a_reroute_that_dies_half_way_is_continued(
    connection: Connection, database: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspend_for_stopped_port(connection, database, home, 250)
    apply(connection, build_orders("C2"), home=home, backlog=Backlog.REROUTE)
    monkeypatch.setattr(instance_operations, "OPERATION_PIECE", 100)

    def die_after_the_first_piece(connection: Connection, operation_id: int) -> BulkOperation:
        operation = get_operation(connection, operation_id)
        if operation.changed:
            raise KeyboardInterrupt
        return operation

    with monkeypatch.context() as patched:
        patched.setattr(instance_operations, "get_operation", die_after_the_first_piece)
        with pytest.raises(KeyboardInterrupt):
            apply_backlog_decisions(connection, "orders")
    [settled] = apply_backlog_decisions(connection, "orders")
    assert settled.count == 150
    assert list_sent(run_host(connection, database, home), "C2") == expected(250)
    assert find_violations(connection) == []


def test_messages_that_are_queued_or_wait_for_a_retry_are_rerouted_too(
    connection: Connection, database: str, home: Path
) -> None:
    apply(connection, build_orders("C"), home=home)
    publish(connection, 2)
    [waiting] = list_instances(connection, InstanceQuery(port="C", limit=1))
    Contents(connection).schedule(waiting.instance_id)
    apply(connection, build_orders("C2"), home=home, backlog=Backlog.REROUTE)
    [settled] = apply_backlog_decisions(connection, "orders")
    assert (settled.count, settled.active) == (2, 0)
    recorder = run_host(connection, database, home)
    assert (list_sent(recorder, "C2"), list_sent(recorder, "Audit")) == (expected(2), expected(2))


def test_a_port_whose_filter_changed_gets_the_rerouted_messages(
    connection: Connection, database: str, home: Path
) -> None:
    apply(connection, build_orders("C", "D", filters={"D": "Orders.Region == 'US'"}), home=home)
    send_ports.stop(connection, "C")
    publish(connection, 4)
    run_host(connection, database, home)
    wider = {"D": "Orders.Region == 'US' or Orders.Region == 'EU'"}
    apply(connection, build_orders("D", filters=wider), home=home, backlog=Backlog.REROUTE)
    apply_backlog_decisions(connection, "orders")
    recorder = run_host(connection, database, home)
    assert (list_sent(recorder, "D"), list_sent(recorder, "Audit")) == (expected(4), [])


def test_a_subscription_that_is_replaced_with_the_same_filter_does_not_get_them_again(
    connection: Connection, database: str, home: Path
) -> None:
    suspend_for_stopped_port(connection, database, home, 4)
    app = Application("orders")
    app.property(Region)
    app.send_port("Audit", adapters.Null(), filter=Region.exists(), priority=7)
    app.send_port("C2", adapters.Null(), filter=Region == "EU")
    apply(connection, app.definition(), home=home, backlog=Backlog.REROUTE)
    apply_backlog_decisions(connection, "orders")
    recorder = run_host(connection, database, home)
    assert (list_sent(recorder, "C2"), list_sent(recorder, "Audit")) == (expected(4), [])


def test_a_rerouted_message_may_return_to_its_own_port(connection: Connection, database: str, home: Path) -> None:
    suspend_for_stopped_port(connection, database, home, 2)
    send_ports.start(connection, "C")
    changes.suspend_all(connection, InstanceQuery(port="C"))
    assert changes.reroute_all(connection, InstanceQuery(port="C")).total() == 2
    recorder = run_host(connection, database, home)
    assert (list_sent(recorder, "C"), list_sent(recorder, "Audit")) == (expected(2), [])


def test_each_copy_of_a_message_returns_to_its_own_subscription(
    connection: Connection, database: str, home: Path
) -> None:
    """A message that reaches a port directly and through a group has two copies."""
    app = Application("orders")
    app.property(Region)
    port = app.send_port("C", adapters.Null(), filter=Region == "EU", state="stopped")
    app.send_port_group("All", [port], filter=Region == "EU")
    apply(connection, app.definition(), home=home)
    publish(connection, 1)
    assert count_states(connection, InstanceQuery()) == {InstanceState.SUSPENDED: 2}
    send_ports.start(connection, "C")
    changes.suspend_all(connection, InstanceQuery())
    assert changes.reroute_all(connection, InstanceQuery(port="C")).total() == 2
    assert list_sent(run_host(connection, database, home), "C") == [b"0", b"0"]


def test_the_messages_of_a_removed_sink_are_rerouted_to_a_send_port(
    connection: Connection, database: str, home: Path
) -> None:
    app = Application("orders")
    app.property(Region)
    app.send_port("Lake", adapters.SparkSink("parquet", "lake"), filter=Region == "EU")
    apply(connection, app.definition(), home=home)
    publish(connection, 3)
    apply(connection, build_orders("C"), home=home, backlog=Backlog.REROUTE)
    [settled] = apply_backlog_decisions(connection, "orders")
    assert (settled.name, settled.count) == ("Lake", 3)
    recorder = run_host(connection, database, home)
    assert (list_sent(recorder, "C"), list_sent(recorder, "Audit")) == (expected(3), expected(3))


def test_a_removed_port_keeps_its_name_on_its_instances(connection: Connection, database: str, home: Path) -> None:
    suspend_for_stopped_port(connection, database, home, 1)
    apply(connection, build_orders("C2"), home=home, backlog=Backlog.KEEP)
    connection.execute("SELECT purge_subscriptions('0 s')")
    [instance] = list_instances(connection, InstanceQuery(port="C"))
    assert (instance.service, instance.port, instance.service_removed) == ("C", "C", True)
    advice = get_advice(instance) or ""
    assert f"postroom instance reroute {instance.instance_id}" in advice
    assert "Start the port" not in advice
    changes.resume(connection, instance.instance_id)
    run_host(connection, database, home)
    [instance] = list_instances(connection, InstanceQuery(port="C"))
    assert (instance.error_code, instance.service) == ("PORT_GONE", "C")
    assert instance.reason == "The send port 'C' was removed after the message was queued for it."


def test_a_port_of_the_same_name_in_another_application_does_not_inherit_the_instances(
    connection: Connection, database: str, home: Path
) -> None:
    suspend_for_stopped_port(connection, database, home, 2)
    apply(connection, build_orders(), home=home, backlog=Backlog.KEEP)
    other = Application("others")
    other.property(Region)
    other.send_port("C", adapters.Null(), filter=Region == "EU")
    apply(connection, other.definition(), home=home)
    assert count_states(connection, InstanceQuery(port="C")) == {InstanceState.SUSPENDED: 2}
    assert all(each.service_removed for each in list_instances(connection, InstanceQuery(port="C")))
    assert run_host(connection, database, home).sent == []
    without = Application("others")
    without.property(Region)
    apply(connection, without.definition(), home=home, backlog=Backlog.TERMINATE)
    assert apply_backlog_decisions(connection, "others") == []
    assert count_states(connection, InstanceQuery(port="C")) == {InstanceState.SUSPENDED: 2}
    apply(connection, build_orders("C"), home=home)
    assert len(list_sent(run_host(connection, database, home), "C")) == 2, "its own application declares it again"
