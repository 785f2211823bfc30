"""Applying service windows and backup transports of send ports (SND-06, 10)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from postroom import Application, BackupTransport, CircuitBreaker, Property, Retry, Schedule, adapters
from postroom.messagebox.circuits import open_circuit, read_open_circuits
from postroom.messagebox.connection import Connection
from postroom.operations.deployment.backlog import Backlog
from postroom.ports.send_ports import read_send_ports
from tests.support.contents import Contents
from tests.support.deployment import deploy

Region = Property("Orders.Region", str)
EVENING = Schedule(window=("18:00", "20:00"), zone="Europe/Berlin")


def orders(*, ports: tuple[str, ...] = ("Europe",), **settings: Any) -> Application:
    app = Application("orders")
    app.property(Region)
    for port in ports:
        app.send_port(port, adapters.Http("https://example.com/orders"), filter=Region == "EU", **settings)
    return app


def postpone_message(connection: Connection) -> None:
    """Add a message that waits until tomorrow for the service window of the port."""
    Contents(connection).postpone_message()


def is_due(connection: Connection) -> bool:
    [row] = Contents(connection).scheduled_rows()
    return row.valid_from is not None and row.valid_from <= datetime.now(UTC)


def test_transports_are_stored_and_an_unchanged_port_is_no_change(connection: Connection) -> None:
    backup = BackupTransport(
        adapters.File("out/late"), retry=Retry(count=1, interval=60), service_window=Schedule(weekdays=["sun"])
    )
    deploy(connection, orders(service_window=EVENING, backup=backup, expire_after=3600))
    (port,) = read_send_ports(connection)
    assert (port.settings.service_window, port.settings.expire_after) == (EVENING, timedelta(hours=1))
    assert port.backup is not None
    assert port.backup.adapter == backup.adapter
    assert port.backup.settings.retry == backup.retry
    assert port.backup.settings.service_window == backup.service_window
    assert port.backup.uri == "file:///srv/orders/out/late"
    assert deploy(connection, orders(service_window=EVENING, backup=backup, expire_after=3600)).changes == ()


def test_a_plan_describes_a_changed_backup_transport_without_its_secrets(connection: Connection) -> None:
    deploy(connection, orders())
    secret = adapters.Http("https://backup.example.com/", headers={"X-Tenant": "t0p"})
    done = deploy(connection, orders(backup=BackupTransport(secret), service_window=EVENING))
    (step,) = (step for step in done.changes if step.name == "Europe")
    described = {difference.field: (difference.before, difference.after) for difference in step.differences}
    assert described["backup adapter url"] == ("none", "https://backup.example.com/")
    assert described["backup uri"] == ("none", "https://backup.example.com/")
    assert described["service window"] == ("none", "18:00-20:00, Europe/Berlin")
    assert described["backup retry count"] == ("none", "3")
    assert "t0p" not in str(done)
    undone = deploy(connection, orders(service_window=EVENING))
    (step,) = (step for step in undone.changes if step.name == "Europe")
    assert ("backup uri", "none") in {(difference.field, difference.after) for difference in step.differences}
    (port,) = read_send_ports(connection)
    assert port.backup is None


def test_a_changed_window_makes_the_messages_due_that_wait_for_the_old_one(connection: Connection) -> None:
    deploy(connection, orders(service_window=EVENING))
    postpone_message(connection)
    deploy(connection, orders(service_window=EVENING, priority=3))
    assert not is_due(connection)
    deploy(connection, orders(service_window=Schedule(window=("06:00", "20:00")), priority=3))
    assert is_due(connection)


def test_a_host_that_is_behind_opens_no_circuit_breaker_of_a_removed_port(connection: Connection) -> None:
    deploy(connection, orders(circuit_breaker=CircuitBreaker()))
    (port,) = read_send_ports(connection)
    deploy(connection, orders(ports=()))
    open_circuit(connection, port.port_id, port.host_id, opened_by="m", reason="r", probe_interval=timedelta(hours=1))
    assert read_open_circuits(connection) == {}


def test_a_changed_circuit_breaker_closes_and_releases_what_it_paused(connection: Connection) -> None:
    deploy(connection, orders(circuit_breaker=CircuitBreaker()))
    (port,) = read_send_ports(connection)
    assert port.settings.circuit_breaker == CircuitBreaker()
    open_circuit(connection, port.port_id, port.host_id, opened_by="m", reason="r", probe_interval=timedelta(hours=1))
    postpone_message(connection)
    Contents(connection).pause_scheduled()
    assert deploy(connection, orders(circuit_breaker=CircuitBreaker())).changes == ()
    assert read_open_circuits(connection).keys() == {port.port_id}
    done = deploy(connection, orders(circuit_breaker=CircuitBreaker(failures=20)))
    (step,) = (step for step in done.changes if step.name == "Europe")
    (difference,) = step.differences
    assert difference.field == "circuit breaker"
    assert difference.after == "after 20 failures in 60 s, a probe every 30 s"
    assert read_open_circuits(connection) == {}
    assert is_due(connection)


def test_the_postponed_messages_of_a_removed_port_become_due(connection: Connection) -> None:
    """A host suspends them, because they have no port."""
    deploy(connection, orders(service_window=EVENING))
    postpone_message(connection)
    deploy(connection, orders(ports=()), backlog=Backlog.KEEP)
    assert is_due(connection)
