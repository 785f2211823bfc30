"""A send port moves to another host. The old host delivers its queue, the new host the new messages (SUB-21)."""

from __future__ import annotations

from pathlib import Path

from postroom import Application, Property, adapters
from postroom.agent.direct.direct_agent import DirectAgent
from postroom.hosts import HostInstance
from postroom.message import Message
from postroom.messagebox.configuration.hosts import find_host
from postroom.messagebox.connection import Connection, connect
from postroom.operations.deployment.apply import apply
from postroom.operations.deployment.plan import Action, ChangeKind, Plan
from postroom.operations.ports import send_ports
from tests.integration.hosts.conftest import SETTINGS
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

Region = Property("Orders.Region", str)


def deploy(connection: Connection, home: Path, host: str) -> Plan:
    app = Application("orders")
    app.host("Slow")
    app.property(Region)
    port = app.send_port("Europe", adapters.Null(), filter=Region == "EU", host=host)
    app.send_port_group("Everyone", [port], filter=Region == "all")
    return apply(connection, app.definition(), home=home)


def publish(connection: Connection, body: bytes, region: str = "EU") -> None:
    agent = DirectAgent(connection, find_host(connection, "Main"))
    agent.publish([Message.of(body, promoted={Region: region})])


def test_after_a_move_the_old_host_delivers_its_queue_and_the_new_host_new_messages(
    database: str, tmp_path: Path
) -> None:
    with connect(database) as connection:
        deploy(connection, tmp_path, "Main")
        publish(connection, b"queued")
        send_ports.stop(connection, "Europe")
        publish(connection, b"suspended")
        publish(connection, b"suspended through the group", "all")
        moved = deploy(connection, tmp_path, "Slow")
        (step,) = moved.select(ChangeKind.SEND_PORT, Action.CHANGE)
        assert step.note == ("stays stopped; queued messages stay with host Main, which has to run until they are sent")
        publish(connection, b"new", "all")
        assert send_ports.start(connection, "Europe").resumed == 3
        old, new = RecordingAdapter(), RecordingAdapter()
        with (
            HostInstance(database, "Main", tmp_path, settings=SETTINGS, as_role=True, build_adapter=old.build),
            HostInstance(database, "Slow", tmp_path, settings=SETTINGS, as_role=True, build_adapter=new.build),
        ):
            wait_until(lambda: len(old.sent) == 3 and len(new.sent) == 1, what="all messages sent")
        assert sorted(old.bodies) == [b"queued", b"suspended", b"suspended through the group"]
        assert new.bodies == [b"new"]
