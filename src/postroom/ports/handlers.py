"""The declared handlers of hosts: an adapter that a host runs in one direction, with its watermarks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from postroom.application.handler import Handler
from postroom.messagebox.configuration.handlers import read_adapter_kinds, read_handler_rows, store_handler_rows
from postroom.messagebox.connection import Connection


def read_handlers(connection: Connection) -> dict[int, tuple[Handler, ...]]:
    """Return the declared handlers by host id. A host without any has the default handlers."""
    found: defaultdict[int, list[Handler]] = defaultdict(list)
    for row in read_handler_rows(connection):
        found[row.pop("host_id")].append(Handler(**row))
    return {host_id: tuple(handlers) for host_id, handlers in found.items()}


def store_handlers(connection: Connection, host_id: int, handlers: Sequence[Handler]) -> None:
    """Replace the declared handlers of a host."""
    store_handler_rows(connection, host_id, [handler.model_dump() for handler in handlers])


def read_send_handlers(connection: Connection, host_id: int) -> Mapping[bytes, Handler]:
    """Return the handler of each send port that has messages on a host, by the bytes of the port id."""
    declared = {handler.key: handler for handler in read_handlers(connection).get(host_id, ())}
    kinds = read_adapter_kinds(connection, host_id)
    return {port_id.bytes: declared.get((kind, "send"), Handler(kind, "send")) for port_id, kind in kinds.items()}
