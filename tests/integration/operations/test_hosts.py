"""Add, remove, start and stop hosts: HST-03, 04, DEQ-13."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom import Application, Property, adapters
from postroom.client.client import Client
from postroom.errors import StateError
from postroom.hosts import HostInstance, HostSettings
from postroom.messagebox.configuration.hosts import read_hosts
from postroom.messagebox.connection import Connection, read_value
from postroom.operations.deployment.apply import apply
from postroom.operations.hosts import add_host, delete_host, list_hosts, set_stopped
from tests.support.contents import Contents
from tests.support.waiting import wait_until

Region = Property("Orders.Region", str)


def deploy(connection: Connection, home: Path, *, host: str = "Main") -> None:
    app = Application("orders")
    app.property(Region)
    if host != "Main":
        app.host(host)
    app.send_port("Europe", adapters.Null(), filter=Region == "EU", host=host)
    apply(connection, app.definition(), home=home)


def get_names(connection: Connection) -> list[str]:
    return [host.name for host in list_hosts(connection)]


def test_a_host_is_added_and_removed_with_its_queues_and_its_role(connection: Connection, tmp_path: Path) -> None:
    """DEQ-09."""
    deploy(connection, tmp_path)
    add_host(connection, "Slow")
    assert get_names(connection) == ["Main", "Slow"]
    for queue in ("slow_q", "slow_q_suspended", "slow_q_scheduled"):
        assert read_value(connection, "SELECT to_regclass(%s) IS NOT NULL", f"messagebox.{queue}")
    [role] = [host.role_name for host in read_hosts(connection) if host.name == "Slow"]
    delete_host(connection, "slow")
    assert get_names(connection) == ["Main"]
    assert read_value(connection, "SELECT to_regclass('messagebox.slow_q') IS NULL")
    assert read_value(connection, "SELECT count(*) FROM pg_proc WHERE proname LIKE '%%\\_slow'") == 0
    assert read_value(connection, "SELECT count(*) FROM pg_roles WHERE rolname = %s", role) == 0
    add_host(connection, "Slow")


def test_a_host_that_is_used_is_not_removed(connection: Connection, database: str, tmp_path: Path) -> None:
    deploy(connection, tmp_path, host="Slow")
    with Client(database) as client:
        client.publish(b"", promoted={Region: "EU"})
    with pytest.raises(StateError, match="it has 1 send port, 1 subscription, 1 queued message"):
        delete_host(connection, "Slow")
    with pytest.raises(StateError, match="Main is the default host"):
        delete_host(connection, "Main")
    with pytest.raises(StateError, match="There is a host 'main' already"):
        add_host(connection, "main")


def test_a_stopped_host_keeps_its_messages_until_it_is_started(
    connection: Connection, database: str, tmp_path: Path
) -> None:
    """DEQ-13: messages are routed into the queue of a stopped host, and nothing is suspended."""
    deploy(connection, tmp_path)
    settings = HostSettings(runs_jobs=False)
    with HostInstance(database, "Main", tmp_path, settings=settings) as instance, Client(database) as client:
        client.publish(b"", promoted={Region: "EU"})
        wait_until(lambda: instance.counts["completed"] == 1)
        set_stopped(connection, "Main", stopped=True)
        wait_until(lambda: instance.registration.is_stopped)
        client.publish(b"", promoted={Region: "EU"})
        assert Contents(connection).count("unclaimed") == 1
        with pytest.raises(StateError, match="is already stopped"):
            set_stopped(connection, "Main", stopped=True)
        set_stopped(connection, "Main", stopped=False)
        wait_until(lambda: instance.counts["completed"] == 2)


def test_a_host_instance_that_starts_while_the_host_is_stopped_waits(
    connection: Connection, database: str, tmp_path: Path
) -> None:
    deploy(connection, tmp_path)
    set_stopped(connection, "Main", stopped=True)
    with Client(database) as client:
        client.publish(b"", promoted={Region: "EU"})
    with HostInstance(database, "Main", tmp_path, settings=HostSettings(runs_jobs=False)) as instance:
        assert instance.registration.is_stopped
        assert instance.counts.total() == 0
        set_stopped(connection, "Main", stopped=False)
        wait_until(lambda: instance.counts["completed"] == 1)
