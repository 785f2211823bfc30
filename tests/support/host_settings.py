"""Change settings of a host, as the deployment of an application that declares them."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from postroom.messagebox.configuration.hosts import get_host
from postroom.messagebox.connection import Connection
from postroom.throttling import Throttling


def set_trust(connection: Connection, host_id: int, trusted: bool = True) -> None:
    """Trust a host to name the originators of messages, or not."""
    _change(connection, host_id, trusted=trusted)


def set_thresholds(connection: Connection, host_id: int, throttling: Throttling) -> None:
    """Set the throttling thresholds of a host."""
    _change(connection, host_id, throttling=throttling.model_dump())


def _change(connection: Connection, host_id: int, **settings: Any) -> None:
    definition = {**get_host(connection, host_id).definition, **settings}
    connection.execute("SELECT store_host_definition(%s::smallint, %s)", (host_id, Jsonb(definition)))
