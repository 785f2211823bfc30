"""Start and stop an application as a whole: ORS-06."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom import Application, Message, Property, adapters, pipelines
from postroom.client.client import Client
from postroom.errors import NotFound
from postroom.messagebox.configuration.applications import list_applications
from postroom.messagebox.connection import Connection
from postroom.operations.deployment import applications
from postroom.operations.deployment.apply import apply
from postroom.operations.orchestrations.states import list_orchestrations
from postroom.operations.ports import send_ports
from postroom.operations.ports.groups import list_groups
from postroom.operations.ports.receive_locations import list_locations
from tests.support.contents import Contents

Region = Property("Orders.Region", str)


def deploy(connection: Connection, home: Path, name: str) -> None:
    app = Application(name)
    app.property(Region)
    app.receive_port(f"{name}In").location(f"{name}Drop", adapters.File(f"{name}-in"), pipeline=pipelines.PassThrough())
    port = app.send_port(f"{name}Out", adapters.Null(), filter=Region == name)
    app.send_port_group(f"{name}All", [port], filter=Region == "ALL")

    @app.orchestration(activate=Region == f"{name} start", name=f"{name}Process")
    async def process(first: Message) -> None:
        """Do nothing. No host runs it."""

    @app.orchestration(activate=Region == f"{name} start", name=f"{name}Process", version=2)
    async def process_again(first: Message) -> None:
        """Do nothing. No host runs it."""

    apply(connection, app.definition(), home=home)


States = tuple[list[str], list[str], list[str], list[bool]]


def read_states(connection: Connection, application: str) -> States:
    """Return the states of the ports, groups, newest versions of orchestrations, and locations."""
    return (
        [listing.state.name for listing in send_ports.list_ports(connection, application=application)],
        [group.state.name for group in list_groups(connection, application=application)],
        [listing.state.name for listing in list_orchestrations(connection, application=application) if listing.newest],
        [location.enabled for location in list_locations(connection) if location.application == application],
    )


@pytest.mark.parametrize(
    ("options", "states"),
    [
        ({}, (["STOPPED"], ["STOPPED"], ["STOPPED"], [False])),
        ({"receiving_only": True}, (["STARTED"], ["STARTED"], ["STARTED"], [False])),
        ({"unenlist": True}, (["BOUND"], ["BOUND"], ["BOUND"], [False])),
    ],
)
def test_an_application_is_stopped_and_started_as_a_whole(
    connection: Connection, tmp_path: Path, options: dict[str, bool], states: States
) -> None:
    running = (["STARTED"], ["STARTED"], ["STARTED"], [True])
    deploy(connection, tmp_path, "A")
    deploy(connection, tmp_path, "B")
    stopped = applications.stop(connection, "A", **options)
    assert read_states(connection, "A") == states
    assert read_states(connection, "B") == running
    assert applications.stop(connection, "A", **options) == []
    started = applications.start(connection, "A")
    assert read_states(connection, "A") == running
    assert {(change.kind, change.name) for change in started} == {(change.kind, change.name) for change in stopped}
    assert applications.start(connection, "A") == []


@pytest.mark.parametrize(("value", "kind"), [("A", "send port"), ("A start", "orchestration")])
def test_messages_that_arrive_while_it_is_stopped_are_resumed_by_the_start(
    connection: Connection, database: str, tmp_path: Path, value: str, kind: str
) -> None:
    deploy(connection, tmp_path, "A")
    applications.stop(connection, "A")
    with Client(database) as client:
        client.publish(b"", promoted={Region: value})
    assert Contents(connection).count("suspended") == 1
    changes = applications.start(connection, "A")
    assert [change.resumed for change in changes if change.kind == kind] == [1]
    assert Contents(connection).count("queued") == 1


def test_orchestrations_start_after_the_ports_and_stop_before_them(connection: Connection, tmp_path: Path) -> None:
    deploy(connection, tmp_path, "A")
    stopped = applications.stop(connection, "A")
    assert [change.kind for change in stopped] == ["location", "orchestration", "send port group", "send port"]
    started = applications.start(connection, "A")
    assert [change.kind for change in started] == ["send port", "send port group", "orchestration", "location"]


def test_an_application_is_listed_with_the_number_of_its_orchestrations(connection: Connection, tmp_path: Path) -> None:
    deploy(connection, tmp_path, "A")
    assert [(listed.name, listed.orchestrations) for listed in list_applications(connection)] == [("A", 2)]


def test_an_unknown_application_is_refused(connection: Connection, tmp_path: Path) -> None:
    deploy(connection, tmp_path, "A")
    with pytest.raises(NotFound, match="no application 'B'"):
        applications.stop(connection, "B")
