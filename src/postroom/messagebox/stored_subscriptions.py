"""Reads the subscriptions that messages are matched against, for operators."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal, NamedTuple

from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement

SubscriptionType = Literal["activation", "instance"]


@dataclass(frozen=True, kw_only=True)
class StoredSubscription:
    """A subscription that messages are matched against."""

    subscription_id: int
    type: SubscriptionType
    service_class: ServiceClass
    service_id: uuid.UUID
    service_name: str
    host: str
    instance_id: uuid.UUID | None
    priority: int
    state: ServiceState
    ordered_delivery: bool
    request_response: bool
    filter: str
    """The filter as the user wrote it, or empty. The filter of an instance is redacted. The stored predicates are what
    is matched."""
    convoy: tuple[str, ...]
    """The keys of the properties that identify a convoy."""
    created_at: datetime
    group: str | None = None
    """The send port group that the service receives through, or None for its own subscription."""


class PossibleSubscription(NamedTuple):
    """An activation subscription. ``filter`` is the text that the user wrote, or empty."""

    subscription_id: int
    service_id: uuid.UUID
    service_name: str
    group: str | None
    host: str
    state: ServiceState
    filter: str


def read_subscriptions(connection: Connection, **conditions: Any) -> list[StoredSubscription]:
    """Return the subscriptions that meet the conditions, sorted by the name of their service: ``id``, ``activation``,
    ``service``, ``group``, ``instance`` and ``limit``."""
    parameters = dict.fromkeys(("id", "activation", "service", "group", "instance", "limit")) | conditions
    return [_to_subscription(row) for row in connection.execute(statement("queries/list_subscriptions"), parameters)]


def read_activations(connection: Connection, *, after: int, limit: int) -> list[PossibleSubscription]:
    """Return activation subscriptions that can be matched, by their id, from the first one above ``after``."""
    rows = connection.execute(statement("queries/read_subscribers"), {"after": after, "limit": limit})
    return [
        PossibleSubscription._make((*of_service, ServiceState(state), filter)) for *of_service, state, filter in rows
    ]


def read_correlation_keys(connection: Connection, ids: Sequence[int]) -> dict[int, list[str]]:
    """Return the keys of the properties that instance subscriptions wait by, for logins that may not read the
    values."""
    return dict(connection.execute(statement("queries/read_correlation_properties"), (list(ids),)).fetchall())


#: The fields in the order of the columns of list_subscriptions.sql.
_FIELDS = [each.name for each in fields(StoredSubscription) if each.name != "type"]


def _to_subscription(row: tuple[Any, ...]) -> StoredSubscription:
    values = dict(zip(_FIELDS, row, strict=True))
    return StoredSubscription(
        **{
            **values,
            "type": "activation" if values["instance_id"] is None else "instance",
            "service_class": ServiceClass(values["service_class"]),
            "state": ServiceState(values["state"]),
            "convoy": tuple(values["convoy"]),
        }
    )
