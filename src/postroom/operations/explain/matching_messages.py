"""What a filter would match among the messages that are in the MessageBox now, the latest first.

    find_matching_messages(connection, Region == "EU", limit=20).messages[0].message_id

The messages go through the index in batches, so that neither many of them nor a large filter fill the memory.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import pyarrow as pa

from postroom.filters.authorisation import ApplicationProperties, may_receive
from postroom.filters.columns import arrow_type
from postroom.filters.explain import Explanation, distance, explain
from postroom.filters.expression import Comparable, Filter
from postroom.filters.index import SubscriptionIndex
from postroom.message import Context
from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement
from postroom.messagebox.storage.stored_context import name_originator
from postroom.operations.redaction import read_sensitive_keys, redact_explanation
from postroom.system_properties import BTS
from postroom.values import Value

_AT_A_TIME = 1_000


@dataclass(frozen=True, kw_only=True)
class ComparedMessage:
    """A stored message, and how it stands to the filter."""

    message_id: uuid.UUID
    published_at: datetime
    message_type: str | None
    explanation: Explanation
    authorised: bool
    """May the subscriber's host receive it?"""


@dataclass(kw_only=True)
class MatchingMessages:
    """Of the messages that were looked at, how many match; the latest that do; and if none does, the nearest."""

    scanned: int = 0
    matching: int = 0
    messages: list[ComparedMessage] = field(default_factory=list)
    nearest: list[ComparedMessage] = field(default_factory=list)


def find_matching_messages(
    connection: Connection,
    filter: Filter,
    *,
    limit: int = 20,
    among: int | None = None,
    misses: int = 3,
    shown: ApplicationProperties | None = None,
    waiting: bool = False,
) -> MatchingMessages:
    """The ``limit`` latest matches ``among`` so many messages, the latest (None: all); ``misses`` if there is none.

    ``shown`` is what the subscriber's host can show to be authorised; without it no host is asked. If the filter is
    that of a ``waiting`` instance, its sensitive values are not shown either."""

    def compared(one: _Stored) -> ComparedMessage:
        return _compared(one, filter, shown, lambda explained: redact_explanation(explained, hidden, waiting=waiting))

    index = SubscriptionIndex()
    index.add(1, filter)
    properties = {each.property.key: each.property for group in filter.groups for each in group}
    hidden = read_sensitive_keys(connection)
    found = MatchingMessages()
    nearest: list[tuple[float, _Stored]] = []
    for batch in _latest(connection, among):
        columns = _columns(properties, [one.context.promoted for one in batch])
        rows = index.match(columns, len(batch))[0].tolist()
        found.scanned += len(batch)
        found.matching += len(rows)
        for row in rows[: limit - len(found.messages)]:
            found.messages.append(compared(batch[row]))
        if not found.matching:
            # What is as near comes later stays later: the sort is stable, and the latest come first.
            ranked = [(distance(filter.groups, one.context.promoted, one.context.written), one) for one in batch]
            nearest = sorted([*nearest, *ranked], key=lambda pair: pair[0])[:misses]
    if not found.matching:
        found.nearest = [compared(one) for _, one in nearest]
    return found


@dataclass(frozen=True, slots=True)
class _Stored:
    message_id: uuid.UUID
    published_at: datetime
    context: Context


def _stored(
    message_id: uuid.UUID, published_at: datetime, context: dict[str, dict[str, object]], sid: str, pid: str
) -> _Stored:
    name_originator(context["promoted"], context["written"], (sid, pid))
    return _Stored(message_id, published_at, Context.from_json(context))


def _latest(connection: Connection, among: int | None) -> Iterator[list[_Stored]]:
    with connection.transaction(), connection.cursor(name="newest_messages") as cursor:
        cursor.execute(statement("queries/newest_messages"), {"limit": among})
        while ids := [message_id for (message_id,) in cursor.fetchmany(_AT_A_TIME)]:
            rows = connection.execute(statement("queries/read_contexts"), (ids,))
            there = {row[0]: _stored(*row) for row in rows}
            yield [there[message_id] for message_id in ids if message_id in there]


def _columns(compared: Mapping[str, Comparable], batch: Sequence[Mapping[str, Value]]) -> dict[str, pa.Array]:
    """The values that the filter asks for. One of another type than its property's meets nothing, and is left out."""
    return {
        key: pa.array(
            [value if type(value := promoted.get(key)) is prop.value_type.python_type else None for promoted in batch],
            arrow_type(prop.value_type),
        )
        for key, prop in compared.items()
    }


def _compared(
    one: _Stored,
    filter: Filter,
    shown: ApplicationProperties | None,
    redact_adapter: Callable[[Explanation], Explanation],
) -> ComparedMessage:
    message_type = one.context.get(BTS.MessageType)
    return ComparedMessage(
        message_id=one.message_id,
        published_at=one.published_at,
        message_type=None if message_type is None else str(message_type),
        explanation=redact_adapter(explain(filter, one.context.promoted, one.context.written)),
        authorised=shown is None or may_receive(one.context.predicates, shown),
    )
