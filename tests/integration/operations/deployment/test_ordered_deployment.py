"""Applying a change of `ordered` to a send port with queued and suspended messages (SND-11)."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom import Application, Property, adapters
from postroom.agent.direct.direct_agent import DirectAgent
from postroom.hosts import HostInstance, HostSettings
from postroom.message import Message
from postroom.messagebox.configuration.hosts import find_host
from postroom.messagebox.connection import Connection
from postroom.messagebox.maintenance.check import check
from postroom.operations.ports import send_ports
from postroom.ports.send_ports import read_send_ports
from tests.support.contents import Contents
from tests.support.deployment import deploy
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

Region = Property("Orders.Region", str)


def orders(*, ordered: bool) -> Application:
    app = Application("orders")
    app.property(Region)
    app.send_port("Europe", adapters.Http("https://example.com/orders"), filter=Region == "EU", ordered=ordered)
    return app


def publish(connection: Connection, numbers: range) -> None:
    agent = DirectAgent(connection, find_host(connection, "Main"))
    for number in numbers:
        agent.publish([Message.of(str(number).encode(), promoted={Region: "EU"})])


@pytest.mark.parametrize("ordered", [True, False])
def test_a_port_with_a_backlog_delivers_it_once_after_a_change_of_its_order(
    connection: Connection, database: str, tmp_path: Path, ordered: bool
) -> None:
    """The messages of the ordered port keep their order, whether they were published before or after the change."""
    deploy(connection, orders(ordered=ordered))
    publish(connection, range(10))
    send_ports.stop(connection, "Europe")
    publish(connection, range(10, 20))
    done = deploy(connection, orders(ordered=not ordered))
    (step,) = (step for step in done.changes if step.name == "Europe")
    assert "queued messages keep the way in which they were queued" in step.note
    assert [port.settings.ordered for port in read_send_ports(connection)] == [not ordered]
    publish(connection, range(20, 30))
    send_ports.start(connection, "Europe")
    publish(connection, range(30, 40))
    recorder = RecordingAdapter()
    settings = HostSettings(runs_jobs=False)
    with HostInstance(database, "Main", tmp_path, build_adapter=recorder.build, settings=settings, as_role=True):
        wait_until(lambda: Contents(connection).count("instances") == 0, what="no instances")
    sent = [int(body) for body in recorder.bodies]
    assert sorted(sent) == list(range(40))
    published_in_order = range(20) if ordered else range(20, 40)
    assert [number for number in sent if number in published_in_order] == list(published_in_order)
    assert check(connection) == []
