"""A port that receives a message directly and through groups sends each copy (SUB-15), with its own file name."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom import Application, Property, adapters
from postroom.agent.direct.direct_agent import DirectAgent
from postroom.hosts import HostInstance
from postroom.message import Message
from postroom.messagebox.configuration.hosts import find_host
from postroom.messagebox.connection import Connection, connect
from postroom.operations.deployment.apply import apply
from tests.integration.hosts.conftest import SETTINGS
from tests.support.contents import Contents
from tests.support.waiting import wait_until

Region = Property("Orders.Region", str)


def deploy(connection: Connection, home: Path, *, name: str = "%MessageID%.txt", grouped: bool = True) -> None:
    app = Application("orders")
    app.property(Region)
    app.send_port("Europe", adapters.File("out", name=name), filter=Region == "EU")
    for group in ("All", "A/B") if grouped else ():
        app.send_port_group(group, ["Europe"], filter=Region == "EU")
    apply(connection, app.definition(), home=home)


def publish(connection: Connection) -> str:
    agent = DirectAgent(connection, find_host(connection, "Main"))
    [published] = agent.publish([Message.of(b"order", promoted={Region: "EU"})])
    assert published.subscribers == ("Europe",) * 3
    return str(published.message_id)


def deliver_all(database: str, home: Path) -> list[str]:
    """Run a host until it has deliver_all all messages. Return the names of the files."""
    with connect(database) as connection, HostInstance(database, "Main", home, settings=SETTINGS, as_role=True):
        wait_until(
            lambda: Contents(connection).count("instances") == 0,
            what="an empty queue",
        )
    files = sorted((home / "out").iterdir())
    assert {file.read_bytes() for file in files} == {b"order"}
    return [file.name for file in files]


def list_file_names(message_id: str) -> list[str]:
    return sorted([f"{message_id}.txt", f"{message_id}-All.txt", f"{message_id}-A_B~998d3ed8.txt"])


def test_each_copy_is_a_separate_file(database: str, tmp_path: Path) -> None:
    with connect(database) as connection:
        deploy(connection, tmp_path)
        message_id = publish(connection)
    assert deliver_all(database, tmp_path) == list_file_names(message_id)


def test_a_repeated_attempt_finds_the_file_of_its_copy(database: str, tmp_path: Path) -> None:
    """A crash after the send and before the completion has the same effect."""
    with connect(database) as connection:
        deploy(connection, tmp_path)
        message_id = publish(connection)
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / f"{message_id}-All.txt").write_bytes(b"order")
    assert deliver_all(database, tmp_path) == list_file_names(message_id)


def test_a_copy_keeps_the_name_of_a_deleted_group(database: str, tmp_path: Path) -> None:
    with connect(database) as connection:
        deploy(connection, tmp_path)
        message_id = publish(connection)
        deploy(connection, tmp_path, grouped=False)
        connection.execute("SELECT purge_subscriptions(p_now => now() + interval '2 hours')")
    assert deliver_all(database, tmp_path) == list_file_names(message_id)
    with connect(database) as connection:
        connection.execute("SELECT purge_subscriptions(p_now => now() + interval '2 hours')")
        assert not any(one.group_id for one in Contents(connection).subscriptions())


@pytest.mark.parametrize("name", ["%MessageID%%SendPortGroup%.txt", "order%SendPortGroup%.txt"])
def test_a_template_may_contain_the_group(database: str, tmp_path: Path, name: str) -> None:
    with connect(database) as connection:
        deploy(connection, tmp_path, name=name)
        message_id = publish(connection)
    pattern = name.replace("%MessageID%", message_id)
    expected = [pattern.replace("%SendPortGroup%", group) for group in ("", "All", "A_B~998d3ed8")]
    assert deliver_all(database, tmp_path) == sorted(expected)
