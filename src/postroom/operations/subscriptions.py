"""Subscriptions as operators see them (SUB-17, 19)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, time
from typing import Any, Literal

from postroom.agent.routing.correlation import read_waiting
from postroom.agent.routing.table import read_filters
from postroom.errors import DefinitionError, NotFound, nearest
from postroom.filters.expression import Filter
from postroom.filters.text import format_filter, parse
from postroom.messagebox.configuration import ServiceClass
from postroom.messagebox.connection import Connection
from postroom.messagebox.service_subscriptions import SubscriptionState
from postroom.messagebox.statements import statement
from postroom.operations.properties import read_deployed_properties
from postroom.operations.redaction import (
    build_hidden_filter,
    can_read_correlation_values,
    read_sensitive_keys,
    redact_filter,
)
from postroom.properties import Property

SubscriptionType = Literal["activation", "instance"]

_MOST = 2**31

#: How many subscriptions of one service are named where one is to be chosen.
_NAMED = 10


@dataclass(frozen=True, kw_only=True)
class Subscription:
    """A subscription that can be matched now."""

    subscription_id: int
    type: SubscriptionType
    service_class: ServiceClass
    service_id: uuid.UUID
    service_name: str
    host: str
    instance_id: uuid.UUID | None
    priority: int
    state: SubscriptionState
    ordered_delivery: bool
    request_response: bool
    filter: str
    """As it was written; the predicates are what is matched. Empty if it was written by nobody. Of an instance, as it
    may be shown."""
    convoy: tuple[str, ...]
    """The keys of the properties that keep convoys together."""
    created_at: datetime
    valid_from: datetime | None
    start_window: time | None
    end_window: time | None
    group: str | None = None
    """The send port group that the service receives through, if it is not by itself."""


def list_subscriptions(
    connection: Connection,
    *,
    subscription_type: SubscriptionType | None = None,
    service: str | None = None,
    instance_id: uuid.UUID | None = None,
    limit: int | None = None,
) -> list[Subscription]:
    """The subscriptions that meet the conditions, by the name of their service; ``service`` may be a send port group.
    NotFound if nothing has that name."""
    activation = None if subscription_type is None else subscription_type == "activation"
    conditions = {"activation": activation, "instance": instance_id, "limit": limit}
    found = _read(connection, service=service, **conditions)
    if service is None or found:
        return found
    names = [name for (name,) in connection.execute(statement("queries/list_service_names"))]
    if service not in names:
        hint = nearest(service, names, "There are", none="none; run postroom apply first")
        raise NotFound(f"There is no service {service!r}.", hint=hint)
    return _read(connection, group=service, **conditions)


def find_subscription(connection: Connection, called: str) -> Subscription:
    """The one with that id, or of the service of that name; NotFound if there is none. What a service is activated by
    goes before what its instances wait for."""
    found = _read(connection, id=int(called)) if called.isdecimal() and int(called) < _MOST else []
    # A service may have very many, one for each instance that waits.
    found = found or _read(connection, service=called, activation=True, limit=_NAMED + 1)
    found = found or _read(connection, service=called, limit=_NAMED + 1)
    found = found or _read(connection, group=called, limit=_NAMED + 1)
    if len(found) == 1:
        return found[0]
    if found:
        count = f"more than {_NAMED}" if len(found) > _NAMED else str(len(found))
        ids = ", ".join(f"{one.subscription_id}{_whose(one, called)}" for one in found[:_NAMED])
        raise DefinitionError(f"{called!r} has {count} subscriptions.", hint=f"Give the id of one: {ids}.")
    raise NotFound(
        f"There is no subscription {called!r}.",
        why="A send port has one as long as it is enlisted.",
        hint="See 'postroom subscription list'; 'postroom port enlist NAME' makes one.",
    )


def _whose(one: Subscription, called: str) -> str:
    """What tells the subscriptions of one name apart."""
    if one.group is None:
        return " (its own)" if one.instance_id is None else ""
    return f" ({one.service_name})" if one.group == called else f" (through {one.group})"


def read_subscription_filters(connection: Connection, subscriptions: list[Subscription]) -> dict[int, Filter]:
    """The filters that are matched, from the stored predicates, by subscription id."""
    properties = {prop.key: prop for prop in read_deployed_properties(connection)}
    activations = [one.subscription_id for one in subscriptions if one.instance_id is None]
    waiting = [one.subscription_id for one in subscriptions if one.instance_id is not None]
    stored = read_filters(connection, activations, properties) | read_waiting(connection, waiting, properties)
    return {
        one.subscription_id: as_written(stored[one.subscription_id], one.filter, properties.values())
        for one in subscriptions
        if one.subscription_id in stored  # else it was removed and purged in this very moment
    }


def read_redacted_filters(connection: Connection, subscriptions: list[Subscription]) -> dict[int, Filter]:
    """The same as they may be shown. What an instance waits for came with a message: values of sensitive properties are
    hidden (SEC-14), and all values from those who may not read messages (SEC-13)."""
    waiting = [one for one in subscriptions if one.instance_id is not None]
    shown = read_subscription_filters(connection, [one for one in subscriptions if one.instance_id is None])
    if waiting and can_read_correlation_values(connection):
        hidden = read_sensitive_keys(connection)
        shown |= {
            key: redact_filter(filter, hidden) for key, filter in read_subscription_filters(connection, waiting).items()
        }
    elif waiting:
        ids = [one.subscription_id for one in waiting]
        for subscription_id, keys in connection.execute(statement("queries/read_correlation_properties"), (ids,)):
            shown[subscription_id] = build_hidden_filter(keys)
    return shown


def as_written(stored: Filter, text: str, properties: Iterable[Property]) -> Filter:
    """The stored predicates in the order of the text, which people know; in their own where the two differ."""
    try:
        written = parse(text, properties)
    except DefinitionError:
        return stored
    same = set(map(frozenset, written.groups)) == set(map(frozenset, stored.groups))
    return written if same else stored


def _read(connection: Connection, **conditions: Any) -> list[Subscription]:
    parameters = dict.fromkeys(("id", "activation", "service", "group", "instance", "limit")) | conditions
    found = [_subscription(row) for row in connection.execute(statement("queries/list_subscriptions"), parameters)]
    shown = read_redacted_filters(connection, [one for one in found if one.instance_id is not None])
    return [
        replace(one, filter=format_filter(shown[one.subscription_id])) if one.subscription_id in shown else one
        for one in found
    ]


_FIELDS = (
    *("subscription_id", "instance_id", "service_class", "service_id", "service_name", "host", "priority", "state"),
    *("ordered_delivery", "request_response", "filter", "convoy", "created_at", "valid_from", "start_window"),
    *("end_window", "group"),
)


def _subscription(row: tuple[Any, ...]) -> Subscription:
    values = dict(zip(_FIELDS, row, strict=True))
    return Subscription(
        **{
            **values,
            "type": "activation" if values["instance_id"] is None else "instance",
            "service_class": ServiceClass(values["service_class"]),
            "state": SubscriptionState(values["state"]),
            "convoy": tuple(values["convoy"]),
        }
    )
