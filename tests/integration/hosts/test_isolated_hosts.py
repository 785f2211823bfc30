"""An isolated host runs messaging under a service class of its own: HST-02, SUB-06, DEQ-01."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from http.client import HTTPConnection
from pathlib import Path

import pytest

import postroom
from postroom import Application, Property, adapters, pipelines
from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.receiver import Receiver
from postroom.errors import DefinitionRefused
from postroom.hosts import HostInstance
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.instances import InstanceQuery, InstanceState, list_instances
from postroom.messagebox.maintenance.check import find_violations
from postroom.operations.deployment.apply import apply
from postroom.operations.hosts import list_service_classes, set_service_class
from postroom.ports.receive_locations import read_receive_locations
from tests.integration.hosts.conftest import SETTINGS
from tests.support import changes
from tests.support.box import interchange
from tests.support.contents import Contents
from tests.support.reserved_port import reserve_port
from tests.support.two_way import AnsweringAdapter
from tests.support.waiting import PATIENCE, wait_until

Region = Property("Orders.Region", str)
Deploy = Callable[..., None]
StartHost = Callable[[str], HostInstance]


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    with connect(database) as opened:
        yield opened


@pytest.fixture
def adapter() -> AnsweringAdapter:
    return AnsweringAdapter(lambda body: body.replace(b"quote", b"price"))


@pytest.fixture
def start(database: str, tmp_path: Path, adapter: AnsweringAdapter) -> Iterator[StartHost]:
    with ExitStack() as stack:
        yield lambda name: stack.enter_context(
            HostInstance(database, name, tmp_path, as_role=True, build_adapter=adapter.build, settings=SETTINGS)
        )


@pytest.fixture
def deploy(connection: Connection, tmp_path: Path) -> Iterator[Deploy]:
    """Yield a function that applies an application. Its HTTP location runs on the isolated host Web, and its send ports
    run on Main."""
    with reserve_port() as port:

        def deploy(*ports: str, isolated: bool = True, two_way: bool = False) -> None:
            app = Application("web")
            app.host("Web", isolated=isolated)
            app.property(Region)
            app.receive_port("Quotes", two_way=two_way).location(
                "quotes",
                adapters.HttpReceive("/quotes", port=port, response_timeout=PATIENCE),
                pipeline=pipelines.Json(promote={Region: "region"}),
                host="Web",
            )
            for name in ports:
                app.send_port(name, adapters.Http("http://127.0.0.1/"), filter=Region == "EU", two_way=two_way)
            apply(connection, app.definition(), home=tmp_path)

        yield deploy


def ask(instance: HostInstance, body: bytes) -> tuple[int, bytes]:
    wait_until(lambda: instance.http.ports, what="the listener")
    connection = HTTPConnection("127.0.0.1", instance.http.ports[0], timeout=PATIENCE)
    try:
        connection.request("POST", "/quotes", body)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def count_threads(service_class: ServiceClass) -> int:
    return sum(thread.name.startswith(f"{service_class} ") for thread in threading.enumerate())


def test_an_isolated_host_answers_a_two_way_request(
    connection: Connection, deploy: Deploy, adapter: AnsweringAdapter, start: StartHost
) -> None:
    deploy("Pricing", two_way=True)
    web, _ = start("Web"), start("Main")
    assert ask(web, b'{"region": "EU", "kind": "quote"}') == (200, b'{"region": "EU", "kind": "price"}')
    wait_until(lambda: list_instances(connection, InstanceQuery()) == [])
    assert find_violations(connection) == []


def test_the_responses_of_an_isolated_host_have_its_service_class(
    connection: Connection, deploy: Deploy, adapter: AnsweringAdapter, start: StartHost
) -> None:
    deploy("Pricing", two_way=True)
    waiting: list[str] = []
    adapter.behave = lambda *_: waiting.extend(read_waiting_classes(connection))
    web, _ = start("Web"), start("Main")
    assert ask(web, b'{"region": "EU"}')[0] == 200
    assert waiting == [ServiceClass.MESSAGING_ISOLATED]


def read_waiting_classes(connection: Connection) -> list[str]:
    """Return the service classes of the instance subscriptions."""
    return [one.service_class for one in Contents(connection).subscriptions() if one.instance_id]


def test_the_threads_of_an_isolated_host_are_those_of_its_service_class(
    connection: Connection, deploy: Deploy, start: StartHost
) -> None:
    deploy("Pricing", two_way=True)
    start("Web")
    wait_until(lambda: count_threads(ServiceClass.MESSAGING_ISOLATED) == 5)
    assert count_threads(ServiceClass.MESSAGING_IN_PROCESS) == count_threads(ServiceClass.ORCHESTRATIONS) == 0
    set_service_class(connection, "messaging_isolated", dequeue_threads=2, polling_interval=timedelta(seconds=0.2))
    wait_until(lambda: count_threads(ServiceClass.MESSAGING_ISOLATED) == 2)
    assert {one.name: one.dequeue_threads for one in list_service_classes(connection)} == {
        "caching": 1,
        "messaging_in_process": 5,
        "messaging_isolated": 2,
        "orchestrations": 5,
    }


def receive_without_subscriber(connection: Connection, deploy: Deploy) -> None:
    """Receive a one-way message that nobody subscribes to, so that it is suspended at the isolated host."""
    deploy()
    [location] = read_receive_locations(connection)
    Receiver(connection, RoutingTable()).receive(location, [interchange(b'{"region": "EU"}')])


def test_a_message_of_an_isolated_host_is_resumed_there(
    connection: Connection, deploy: Deploy, adapter: AnsweringAdapter, start: StartHost
) -> None:
    receive_without_subscriber(connection, deploy)
    deploy("Pricing")
    [suspended] = list_instances(connection, InstanceQuery(states=[InstanceState.SUSPENDED]))
    assert (suspended.host, suspended.service_class) == ("Web", ServiceClass.MESSAGING_ISOLATED)
    changes.resume(connection, suspended.instance_id)
    start("Web")
    start("Main")
    wait_until(lambda: adapter.bodies == [b'{"region": "EU"}'])


def test_a_message_of_a_program_is_rerouted_by_an_isolated_host(
    connection: Connection, database: str, deploy: Deploy, adapter: AnsweringAdapter, start: StartHost
) -> None:
    deploy()
    with postroom.connect(database, host="Web") as client, client.subscribe("Desk", Region.exists()) as desk:
        client.publish(b"quote", promoted={Region: "EU"})
        received = desk.receive(PATIENCE)
        assert received is not None
        received.fail("The desk is closed.")
    deploy("Pricing")
    [suspended] = list_instances(connection, InstanceQuery())
    changes.reroute(connection, suspended.instance_id)
    start("Web")
    start("Main")
    wait_until(lambda: adapter.bodies == [b"quote"])


def test_a_host_with_messages_or_processes_keeps_its_type(
    connection: Connection, deploy: Deploy, start: StartHost
) -> None:
    receive_without_subscriber(connection, deploy)
    web = start("Web")
    with pytest.raises(DefinitionRefused) as refused:
        deploy(isolated=False)
    [problem] = refused.value.problems
    assert "host 'Web': it has 2 messages and one host instance." in problem.text
    web.stop()
    changes.terminate_all(connection, InstanceQuery())
    deploy(isolated=False)
