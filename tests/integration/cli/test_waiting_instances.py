"""Waiting instances and convoys in the listings (SUB-17, 19)."""

from __future__ import annotations

import uuid
from pathlib import Path

from postroom.messagebox.configuration.hosts import ServiceClass, read_hosts
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import connect
from postroom.messagebox.subscriptions import ServiceSubscriptions, SubscribingService
from tests.integration.cli.conftest import Run
from tests.support.box import Priority, Region

SERVICE = SubscribingService(service_id=uuid.UUID(int=7), name="Collector")


def test_waiting_instances_and_convoys(applied: Run, database: str, tmp_path: Path) -> None:
    waiting = uuid.uuid4()
    with connect(database) as connection, connection.transaction():
        [host] = read_hosts(connection)
        subscriptions = ServiceSubscriptions(host, ServiceClass.ORCHESTRATIONS)
        convoys = subscriptions.create_convoy_set(connection, [Region])
        activation = subscriptions.activate(connection, SERVICE, Region == "ASIA", convoy_set_id=convoys, ordered=True)
        subscriptions.set_state(connection, activation, ServiceState.STARTED)
        subscriptions.wait(connection, SERVICE, waiting, (Region == "ASIA") & (Priority == 7))

    [one] = applied("subscription", "list", "--type", "instance", "-o", "json").json
    assert (one["instance_id"], one["filter"]) == (
        str(waiting),
        "Orders.Priority == 7 and Orders.Region == 'ASIA'",
    )
    assert applied("subscription", "list", "--instance", waiting, "-o", "json").json == [one]
    assert len(applied("subscription", "list", "--service", "Collector", "--limit", 1, "-o", "json").json) == 1
    listed = applied("subscription", "list", "--service", "Collector").out
    assert str(waiting) in listed
    shown = applied("subscription", "show", one["subscription_id"], "-o", "json").json
    assert {(row["property"], row["operator"], row["value"]) for row in shown["expression"]} == {
        ("Orders.Region", "==", "ASIA"),
        ("Orders.Priority", "==", 7),
    }
    service = applied("subscription", "show", "Collector", "-o", "json").json
    assert (service["type"], service["ordered_delivery"], service["convoy"]) == ("activation", True, [Region.key])
    for field in ("state", "priority", "request_response", "created_at"):
        assert field in service

    body = tmp_path / "order.json"
    body.write_text("{}")
    for _ in range(2):
        assert applied("publish", body, "-p", "Region=ASIA", "-p", "Priority=7").code == 0
    rows = applied("instance", "list", "-o", "json").json
    assert sorted((row["service"], row["messages"]) for row in rows) == [("Collector", 2), ("Collector", 2)]
    assert str(waiting) in [row["instance_id"] for row in rows]
    assert "messages" in applied("instance", "list").out.splitlines()[0]
    assert applied("check").code == 0
    assert applied("instance", "terminate", waiting, "--yes").code == 0
    assert applied("subscription", "list", "--type", "instance", "-o", "json").json == []
