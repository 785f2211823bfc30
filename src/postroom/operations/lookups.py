"""Lookups for operators: list them and their entries."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from postroom.adapters.url_logins import HIDDEN
from postroom.errors import NotFound, suggest_names
from postroom.messagebox.configuration.properties import read_sensitive_keys
from postroom.messagebox.connection import Connection
from postroom.messagebox.lookups import (
    EntryListing,
    LookupListing,
    LookupState,
    list_lookup_entries,
    read_lookup,
    read_lookup_entry,
)
from postroom.messagebox.lookups import list_lookups as read_listings
from postroom.messagebox.storage.stored_values import from_value_key, value_key
from postroom.operations.properties import PropertyListing, list_context
from postroom.operations.redaction import redact_context
from postroom.properties import dotted_name, split_key
from postroom.values import ValueType, value_from_text, value_to_text


@dataclass(frozen=True, kw_only=True)
class EntryDetails:
    """An entry with its message. Values of sensitive properties are hidden."""

    key: str
    message_id: uuid.UUID
    context: Sequence[PropertyListing]
    content_type: str
    body: bytes


def list_lookups(connection: Connection, application: str | None = None) -> list[LookupListing]:
    """Return the lookups of one application, or of all, by name."""
    return [
        replace(listing, key_property=dotted_name(*split_key(listing.key_property)))
        for listing in read_listings(connection, application)
    ]


def list_entries(connection: Connection, name: str, *, limit: int | None = None) -> list[EntryListing]:
    """Return the entries of a lookup, by key, with their keys as text. The keys are hidden if their property is
    sensitive."""
    state = get_lookup(connection, name)
    is_hidden = state.key_property in read_sensitive_keys(connection)
    key_type = ValueType(state.key_type)
    return [
        replace(entry, key=HIDDEN if is_hidden else value_to_text(from_value_key(key_type, entry.key)))
        for entry in list_lookup_entries(connection, state.lookup_id, limit=limit)
    ]


def get_entry(connection: Connection, name: str, key: str) -> EntryDetails:
    """Return the entry of a key that a user has typed. Raise NotFound if there is none."""
    state = get_lookup(connection, name)
    value = value_from_text(ValueType(state.key_type), key)
    message = read_lookup_entry(connection, state.lookup_id, value_key(value))
    if message is None or message.body is None:
        raise NotFound(f"The lookup {name!r} has no entry {key!r}.", hint=f"See 'postroom lookup show {name}'.")
    return EntryDetails(
        key=key,
        message_id=message.message_id,
        context=list_context(redact_context(message.context, read_sensitive_keys(connection))),
        content_type=message.body.content_type,
        body=message.data,
    )


def get_lookup(connection: Connection, name: str) -> LookupState:
    """Return the lookup with this name. Raise NotFound, which suggests names, if there is none."""
    state = read_lookup(connection, name)
    if state is None:
        names = [listing.name for listing in read_listings(connection)]
        hint = suggest_names(name, names, "There are", none="none; declare one with app.lookup(...)")
        raise NotFound(f"There is no lookup {name!r}.", hint=hint)
    return state
