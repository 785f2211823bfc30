"""Lookups for operators: list them and their entries, and load entries from a file."""

from __future__ import annotations

import csv
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from postroom.adapters.url_logins import HIDDEN
from postroom.errors import BadValue, NotFound, format_count, suggest_names
from postroom.filters.evaluate import matches
from postroom.filters.expression import Operator
from postroom.filters.text import parse
from postroom.message import Bytes, Context, Message, Part
from postroom.messagebox.configuration.properties import read_sensitive_keys
from postroom.messagebox.connection import Connection
from postroom.messagebox.lookups import (
    EntryListing,
    LookupListing,
    LookupState,
    list_lookup_entries,
    read_lookup,
    read_lookup_entry,
    read_lookups,
)
from postroom.messagebox.lookups import list_lookups as read_listings
from postroom.messagebox.storage.stored_values import from_value_key, value_key
from postroom.operations.properties import PropertyListing, list_context, parse_context, read_deployed_properties
from postroom.operations.publishing import publish
from postroom.operations.redaction import redact_context
from postroom.properties import Property, dotted_name, split_key
from postroom.values import Value, ValueType, value_from_text, value_to_text

#: The number of messages that are published in one transaction.
BATCH_SIZE = 1_000
#: The number of bad rows that an error lists.
_MAX_LISTED = 20

FileFormat = Literal["csv", "jsonl"]


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
    state = _get_lookup(connection, name)
    is_hidden = state.key_property in read_sensitive_keys(connection)
    key_type = ValueType(state.key_type)
    return [
        replace(entry, key=HIDDEN if is_hidden else value_to_text(from_value_key(key_type, entry.key)))
        for entry in list_lookup_entries(connection, state.lookup_id, limit=limit)
    ]


def get_entry(connection: Connection, name: str, key: str) -> EntryDetails:
    """Return the entry of a key that a user has typed. Raise NotFound if there is none."""
    state = _get_lookup(connection, name)
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


def _get_lookup(connection: Connection, name: str) -> LookupState:
    state = read_lookup(connection, name)
    if state is None:
        names = [listing.name for listing in read_listings(connection)]
        hint = suggest_names(name, names, "There are", none="none; declare one with app.lookup(...)")
        raise NotFound(f"There is no lookup {name!r}.", hint=hint)
    return state


# -- load --------------------------------------------------------------------------------------------------------------


def load_entries(
    connection: Connection,
    name: str,
    file: Path,
    *,
    format: FileFormat | None = None,
    column: str | None = None,
    promoted: Sequence[str] = (),
    host: str | None = None,
) -> int:
    """Publish each row of a CSV file, or each line of a JSON lines file, as a message for a lookup. Return their
    number. Messages go to all subscribers whose filter matches.

    ``column`` has the keys, by default the column with the name of the key property. Messages promote the key, what the
    filter of the lookup compares with ``==``, and ``promoted``. Raise BadValue with the bad rows if there are any; then
    nothing is published."""
    _get_lookup(connection, name)
    [lookup] = [each for each in read_lookups(connection) if each.name == name]
    deployed = read_deployed_properties(connection)
    filter = parse(lookup.filter, deployed)
    key = Property.from_key(lookup.key_property, lookup.key_type)
    context = parse_context(promoted, (), deployed)
    for predicate in filter.groups[0] if len(filter.groups) == 1 else ():
        prop = Property.from_key(predicate.property.key, predicate.property.value_type)
        if predicate.operator is Operator.EQ and prop not in context:
            context = context.promote(prop, predicate.value)
    messages: list[Message] = []
    problems: list[str] = []
    for number, row in _read_rows(file, format or _guess_format(file)):
        try:
            message = _build_message(row, column or key.name, key, context)
            if not matches(filter, message.context.promoted):
                raise BadValue(
                    f"The message does not match the filter of the lookup: {lookup.filter}.",
                    hint="Give the missing properties with --promoted.",
                )
            messages.append(message)
        except BadValue as error:
            problems.append(f"Line {number}: {error.join_sentences()}")
    if problems:
        others = len(problems) - _MAX_LISTED
        more = [f"And {format_count(others, 'other row')}."] if others > 0 else []
        raise BadValue(
            f"{file} has {format_count(len(problems), 'bad row')}.",
            why="\n".join([*problems[:_MAX_LISTED], *more]),
            hint="Nothing was published. Correct the rows and load the file again.",
        )
    for start in range(0, len(messages), BATCH_SIZE):
        publish(connection, messages[start : start + BATCH_SIZE], host=host)
    return len(messages)


def _guess_format(file: Path) -> FileFormat:
    return "csv" if file.suffix.lower() == ".csv" else "jsonl"


def _read_rows(file: Path, format: FileFormat) -> Iterator[tuple[int, Mapping[str, Any] | BadValue]]:
    """Yield the rows of a file with the numbers of their lines, or what is wrong with a row."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            yield from _read_csv(lines) if format == "csv" else _read_json_lines(lines)
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadValue(f"{file} cannot be read as {format}: {error}.", hint="Give its format with --format.") from None


def _read_csv(lines: Iterator[str]) -> Iterator[tuple[int, Mapping[str, Any] | BadValue]]:
    reader = csv.reader(lines, strict=True)
    names = next(reader, [])
    for values in reader:
        if len(values) == len(names):
            yield reader.line_num, dict(zip(names, values, strict=True))
        elif values:
            yield reader.line_num, BadValue(f"It has {len(values)} values, and the first line has {len(names)} names.")


def _read_json_lines(lines: Iterator[str]) -> Iterator[tuple[int, Mapping[str, Any] | BadValue]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            yield number, BadValue(f"It is not JSON: {error}.")
            continue
        yield number, row if isinstance(row, dict) else BadValue("It is not a JSON object.")


def _build_message(row: Mapping[str, Any] | BadValue, column: str, key: Property, context: Context) -> Message:
    if isinstance(row, BadValue):
        raise row
    value = row.get(column)
    if value is None or value == "":
        known = "" if column in row else f" The columns are {', '.join(row)}."
        raise BadValue(f"It has no key in {column!r}.{known}", hint="Name the column of the keys with --key.")
    body = json.dumps(row, ensure_ascii=False).encode()
    part = Part(body=Bytes(body), content_type="application/json")
    return Message(context=context.promote(key, _to_value(key, value)), parts=(part,))


def _to_value(key: Property, value: object) -> Value | object:
    return value_from_text(key.value_type, value) if isinstance(value, str) else value
