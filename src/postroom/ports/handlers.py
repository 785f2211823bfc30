"""The declared handlers of hosts: an adapter that a host runs in one direction, with its watermarks."""

from __future__ import annotations

from collections.abc import Mapping

from postroom.application.handler import Handler
from postroom.messagebox.configuration.endpoints import read_adapter_kinds
from postroom.messagebox.configuration.hosts import Host, get_host
from postroom.messagebox.connection import Connection


def get_declared_handlers(host: Host) -> tuple[Handler, ...] | None:
    """Return the declared handlers of a host. None: it has the default handlers."""
    stored = host.definition.get("handlers")
    return None if stored is None else tuple(Handler(**handler) for handler in stored)


def read_send_handlers(connection: Connection, host_id: int) -> Mapping[bytes, Handler]:
    """Return the handler of each send port that has messages on a host, by the bytes of the port id."""
    declared = {handler.key: handler for handler in get_declared_handlers(get_host(connection, host_id)) or ()}
    kinds = read_adapter_kinds(connection, host_id)
    return {port_id.bytes: declared.get((kind, "send"), Handler(kind, "send")) for port_id, kind in kinds.items()}
