"""Several objects are changed in one transaction, and hosts are woken after the commit."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from postroom.errors import StateError
from postroom.message import Message
from postroom.messagebox.connection import Connection
from postroom.messagebox.coordination.notifications import wake_up_channel
from postroom.operations.all_or_none import all_or_none
from postroom.operations.ports import send_ports
from tests.support.box import Box, Region


@pytest.fixture
def stopped(box: Box) -> Box:
    """Return a MessageBox with two stopped ports, each with a suspended message."""
    for name in ("Europe", "Audit"):
        box.add_port(name, "Region == 'EU'", state="stopped")
    box.agent().publish([Message.of(b"", promoted={Region: "EU"})])
    return box


@pytest.fixture
def notified(monkeypatch: pytest.MonkeyPatch) -> list[tuple[psycopg.pq.TransactionStatus, list[str]]]:
    """Record the notified channels and the state of the transaction at that moment."""
    found = []
    execute = psycopg.Connection.execute

    def record(connection: Connection, query: Any, parameters: Any = None, **options: Any) -> Any:
        if "pg_notify" in query:
            found.append((connection.info.transaction_status, parameters[0]))
        return execute(connection, query, parameters, **options)

    monkeypatch.setattr(psycopg.Connection, "execute", record)
    return found


def test_hosts_are_woken_once_after_the_commit(
    stopped: Box, notified: list[tuple[psycopg.pq.TransactionStatus, list[str]]]
) -> None:
    started = all_or_none(stopped.connection, ["Europe", "Audit", "Europe"], send_ports.start)
    assert [(port.name, port.resumed) for port in started] == [("Europe", 1), ("Audit", 1)]
    assert notified == [(psycopg.pq.TransactionStatus.IDLE, [wake_up_channel("Default")])]


def test_an_error_rolls_back_all_changes_and_wakes_no_host(
    stopped: Box, notified: list[tuple[psycopg.pq.TransactionStatus, list[str]]]
) -> None:
    stopped.add_port("Started", "Region == 'US'")
    with pytest.raises(StateError, match="The others were not changed"):
        all_or_none(stopped.connection, ["Europe", "Started"], send_ports.start)
    assert stopped.suspended() == [("PORT_STOPPED", True)] * 2
    assert notified == []
