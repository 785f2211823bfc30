"""Find the messages in the MessageBox that a filter matches, the latest first.

    find_matching_messages(connection, Region == "EU", limit=20).messages[0].message_id

The messages are matched in batches by the subscription index, to limit the memory that many messages need.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import pyarrow as pa

from postroom.filters.authorisation import ApplicationProperties, may_receive
from postroom.filters.columns import to_arrow_type
from postroom.filters.explain import Explanation, distance, explain
from postroom.filters.expression import Comparable, Filter, Group
from postroom.filters.index import SubscriptionIndex
from postroom.messagebox.configuration.properties import read_deployed_properties, read_sensitive_keys
from postroom.messagebox.connection import Connection
from postroom.messagebox.storage.spool import LatestMessage, read_latest_messages
from postroom.operations.explain.subscribers import find_subscriber, is_directed, select_groups
from postroom.operations.redaction import redact_explanation, redact_filter
from postroom.system_properties import BTS
from postroom.values import Value

_BATCH_SIZE = 1_000


@dataclass(frozen=True, kw_only=True)
class ComparedMessage:
    """A stored message with the explanation of its match or miss."""

    message_id: uuid.UUID
    published_at: datetime
    message_type: str | None
    explanation: Explanation
    authorised: bool
    """True if the subscriber's host may receive it."""

    @property
    def failures(self) -> list[str]:
        """The predicates of the nearest group that fail, in words."""
        return [predicate.description for predicate in self.explanation.nearest.predicates if not predicate.holds]


@dataclass(kw_only=True)
class MatchingMessages:
    """The number of scanned and of matching messages, the latest matches, and the nearest misses if none matches."""

    filter: Filter
    """Sensitive values in the filter of an instance are hidden."""
    scanned: int = 0
    matching: int = 0
    messages: list[ComparedMessage] = field(default_factory=list)
    nearest: list[ComparedMessage] = field(default_factory=list)


def find_messages_of_subscription(
    connection: Connection, id_or_name: str, *, limit: int = 20, among: int | None = None
) -> MatchingMessages:
    """Return what ``find_matching_messages`` finds for the filter and the host of a subscription, or of a send port
    that is not enlisted."""
    subscriber = find_subscriber(connection, id_or_name, read_deployed_properties(connection))
    return find_matching_messages(
        connection,
        subscriber.filter,
        limit=limit,
        among=among,
        host_properties=subscriber.host_properties,
        waiting=subscriber.is_instance,
    )


def find_matching_messages(
    connection: Connection,
    filter: Filter,
    *,
    limit: int = 20,
    among: int | None = None,
    misses: int = 3,
    host_properties: ApplicationProperties | None = None,
    waiting: bool = False,
) -> MatchingMessages:
    """Return the latest matches among the stored messages, or the nearest misses if none matches.

    ``limit`` is the maximum number of matches, ``among`` the number of latest messages to scan (None scans all),
    ``misses`` the maximum number of misses. ``host_properties`` are the application properties of the subscriber's
    host; None skips the authorisation. In the filter of a ``waiting`` instance sensitive values are hidden, too."""

    def get_groups(stored: LatestMessage) -> tuple[Group, ...]:
        return select_groups(filter, directed=is_directed(stored.context))

    def compare(stored: LatestMessage) -> ComparedMessage:
        explanation = explain(Filter(get_groups(stored)), stored.context.promoted, stored.context.written)
        message_type = stored.context.get(BTS.MessageType)
        return ComparedMessage(
            message_id=stored.message_id,
            published_at=stored.published_at,
            message_type=None if message_type is None else str(message_type),
            explanation=redact_explanation(explanation, sensitive, waiting=waiting),
            authorised=host_properties is None or may_receive(stored.context.predicates, host_properties),
        )

    index = SubscriptionIndex()
    index.add(1, filter)
    properties = {each.property.key: each.property for group in filter.groups for each in group}
    sensitive = read_sensitive_keys(connection)
    found = MatchingMessages(filter=redact_filter(filter, sensitive) if waiting else filter)
    nearest: list[tuple[float, LatestMessage]] = []
    for batch in read_latest_messages(connection, among, batch_size=_BATCH_SIZE):
        columns = _to_columns(properties, [message.context.promoted for message in batch])
        rows = index.match(columns, len(batch))[0].tolist()
        found.scanned += len(batch)
        found.matching += len(rows)
        for row in rows[: limit - len(found.messages)]:
            found.messages.append(compare(batch[row]))
        if not found.matching:
            # The sort is stable: of messages at the same distance the latest come first.
            ranked = [
                (distance(get_groups(message), message.context.promoted, message.context.written), message)
                for message in batch
            ]
            nearest = sorted([*nearest, *ranked], key=lambda pair: pair[0])[:misses]
    if not found.matching:
        found.nearest = [compare(stored) for _, stored in nearest]
    return found


def _to_columns(compared: Mapping[str, Comparable], batch: Sequence[Mapping[str, Value]]) -> dict[str, pa.Array]:
    """Return the values that the filter compares. A value of another type than its property matches nothing and is
    left out."""
    return {
        key: pa.array(
            [value if type(value := promoted.get(key)) is prop.value_type.python_type else None for promoted in batch],
            to_arrow_type(prop.value_type),
        )
        for key, prop in compared.items()
    }
