"""An application with a lookup of customers, and what publishes customers."""

from __future__ import annotations

import uuid

from postroom import Application, Message, Property
from postroom.agent.direct.direct_agent import DirectAgent
from postroom.messagebox.configuration.hosts import find_host
from postroom.messagebox.connection import Connection
from postroom.messagebox.lookups import list_lookups, read_lookup, read_lookup_entry

Kind = Property("Crm.Kind", str)
CustomerId = Property("Crm.CustomerId", str)


def customers_app(**arguments: object) -> Application:
    """Return an application with the lookup Customers."""
    app = Application("crm")
    app.property(Kind, CustomerId)
    app.lookup("Customers", **{"key": CustomerId, "filter": Kind == "customer", **arguments})  # type: ignore[arg-type]
    return app


def build_customer(key: str | None, body: bytes | None) -> Message:
    promoted = {Kind: "customer"} if key is None else {Kind: "customer", CustomerId: key}
    return Message.of(body, promoted=promoted)


def publish_customer(connection: Connection, key: str | None, body: bytes | None) -> uuid.UUID:
    """Publish a customer. Without a body, delete it."""
    return publish(connection, build_customer(key, body))


def publish(connection: Connection, message: Message) -> uuid.UUID:
    [published] = DirectAgent(connection, find_host(connection, "Main")).publish([message])
    return published.message_id


def read_customer(connection: Connection, key: str) -> bytes | None:
    """Return the body of an entry, past every cache."""
    state = read_lookup(connection, "Customers")
    assert state is not None
    entry = read_lookup_entry(connection, state.lookup_id, key)
    return None if entry is None else entry.data


def count_waiting(connection: Connection) -> int:
    """Return the number of messages that wait to be applied."""
    return sum(listing.waiting for listing in list_lookups(connection))
