"""Lookups in the MessageBox: which there are, how a host applies messages to them, and how everybody reads them."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from psycopg.types.json import Jsonb

from postroom.message import Bytes, Message, Part
from postroom.messagebox.configuration.services import Service, ServiceState, store_service, store_state
from postroom.messagebox.connection import Connection, read_records, read_value
from postroom.messagebox.statements import statement
from postroom.messagebox.storage.claimed_messages import StoredContext
from postroom.values import ValueType


@dataclass(frozen=True, kw_only=True)
class DeployedLookup:
    """A lookup, as it is deployed."""

    service_id: uuid.UUID
    application_id: uuid.UUID
    host_id: int
    name: str
    definition: dict[str, Any]
    """The stored definition."""

    @property
    def key_property(self) -> str:
        """The key of the property whose value is the key of an entry."""
        return str(self.definition["key"]["key"])

    @property
    def key_type(self) -> ValueType:
        return ValueType(self.definition["key"]["type"])

    @property
    def filter(self) -> str:
        return str(self.definition["filter"])


@dataclass(frozen=True, kw_only=True)
class LookupListing:
    """A lookup with the number of its entries, and of its messages in the queues."""

    application: str
    name: str
    host: str
    key_property: str
    entries: int
    waiting: int
    suspended: int
    changed_at: datetime | None
    """When the last message was applied."""


@dataclass(frozen=True, kw_only=True)
class EntryListing:
    """An entry of a lookup, without its message."""

    key: str
    message_id: uuid.UUID
    applied_at: datetime
    content_type: str
    size: int


class LookupMessage(NamedTuple):
    """A claimed message for a lookup: its number in the queue, its key, and whether it deletes the entry."""

    seq: int
    key: str
    is_deletion: bool


class LookupState(NamedTuple):
    """What a reader learns about a lookup. ``changed`` are the keys that have changed since the version that the reader
    has seen. None: there are too many, or the reader has seen the content of a lookup that was removed."""

    lookup_id: int
    key_property: str
    key_type: int
    version: int
    changed: list[str] | None


def read_lookups(
    connection: Connection, *, application_id: uuid.UUID | None = None, ids: Collection[uuid.UUID] | None = None
) -> list[DeployedLookup]:
    """Return the deployed lookups that the login may read: all, those of an application, or those with these ids."""
    query = (
        "SELECT id AS service_id, application_id, host_id, name, definition FROM lookups"
        " WHERE (%(application)s::uuid IS NULL OR application_id = %(application)s)"
        " AND (%(ids)s::uuid[] IS NULL OR id = ANY (%(ids)s)) ORDER BY name"
    )
    conditions = {"application": application_id, "ids": None if ids is None else list(ids)}
    return read_records(connection, DeployedLookup, query, conditions)


def store_lookup(
    connection: Connection,
    definition: Mapping[str, Any],
    *,
    id: uuid.UUID,
    application_id: uuid.UUID,
    host_id: int,
) -> None:
    """Store a lookup. An existing one keeps its entries."""
    columns = {"id": id, "application_id": application_id, "host_id": host_id, "definition": Jsonb(definition)}
    [(application,)] = connection.execute(statement("queries/store_lookup"), columns).fetchall()
    name = definition["name"]
    store_service(
        connection,
        Service(id=id, kind="lookup", application=application, name=name, port_name=name, host_id=host_id),
    )
    key = definition["key"]
    connection.execute(statement("queries/store_lookup_content"), (id, key["key"], key["type"]))
    # The caller subscribes it.
    store_state(connection, id, ServiceState.STARTED)


def delete_lookup(connection: Connection, service_id: uuid.UUID) -> None:
    """Delete a lookup with its entries. The caller removes its subscription and its service."""
    connection.execute("DELETE FROM lookups WHERE id = %s", (service_id,))
    connection.execute("DELETE FROM lookup_contents WHERE service_id = %s", (service_id,))


def has_lookups(connection: Connection) -> bool:
    """Return True if a host may have messages for lookups: it has a lookup, or one of any host was removed."""
    return bool(read_value(connection, "SELECT count(*) FROM services WHERE kind = 'lookup'"))


def apply_to_lookup(
    connection: Connection, host: str, service_id: uuid.UUID, claim_id: uuid.UUID, messages: Sequence[LookupMessage]
) -> set[int] | None:
    """Apply messages of a claim to a lookup, and complete them. Return the numbers of those that the claim still had,
    or None if the lookup does not exist any more."""
    applied = read_value(
        connection,
        f"SELECT apply_to_lookup_{host.lower()}(%s, %s, %s::bigint[], %s::text[], %s::boolean[])",
        service_id,
        claim_id,
        [message.seq for message in messages],
        [message.key for message in messages],
        [message.is_deletion for message in messages],
    )
    return None if applied is None else set(applied)


def read_lookup(
    connection: Connection, name: str, *, known_id: int = 0, known_version: int = 0, limit: int = 1000
) -> LookupState | None:
    """Return the lookup with a name, and at most ``limit`` keys that have changed since the known version. Return None
    if there is no such lookup."""
    arguments = (name, known_id, known_version, limit)
    row = connection.execute("SELECT * FROM read_lookup(%s, %s, %s, %s)", arguments).fetchone()
    return None if row is None else LookupState(*row)


def read_lookup_entry(connection: Connection, lookup_id: int, key: str) -> Message | None:
    """Return the entry of a key, with its context and its body part."""
    row = connection.execute("SELECT * FROM read_lookup_entry(%s, %s)", (lookup_id, key), binary=True).fetchone()
    if row is None:
        return None
    message_id, context, originator_sid, originator_pid, part_name, content_type, charset, body = row
    part = Part(name=part_name, body=Bytes(bytes(body)), content_type=content_type, charset=charset)
    originator = (originator_sid, originator_pid)
    return Message(context=StoredContext(context, {}, originator), parts=(part,), message_id=message_id)


def list_lookups(connection: Connection, application: str | None = None) -> list[LookupListing]:
    """Return the lookups of one application, or of all, by name."""
    return read_records(connection, LookupListing, statement("queries/list_lookups"), {"application": application})


def list_lookup_entries(connection: Connection, lookup_id: int, *, limit: int | None = None) -> list[EntryListing]:
    """Return the entries of a lookup, by key."""
    conditions = {"lookup_id": lookup_id, "limit": limit}
    return read_records(connection, EntryListing, statement("queries/list_lookup_entries"), conditions)
