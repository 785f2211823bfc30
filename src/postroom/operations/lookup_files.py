"""Load entries of lookups from files."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from postroom.errors import BadValue, format_count
from postroom.filters.evaluate import matches
from postroom.filters.expression import Operator
from postroom.filters.text import parse
from postroom.message import Bytes, Context, Message, Part
from postroom.messagebox.connection import Connection
from postroom.messagebox.lookups import read_lookups
from postroom.operations.lookups import get_lookup
from postroom.operations.properties import parse_context, read_deployed_properties
from postroom.operations.publishing import publish
from postroom.properties import Property
from postroom.values import Value, value_from_text

#: The number of messages that are published in one transaction.
BATCH_SIZE = 1_000
#: The number of bad rows that an error lists.
_MAX_LISTED = 20

FileFormat = Literal["csv", "jsonl"]


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
    get_lookup(connection, name)
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
