"""List subscriptions and their filters for operators (SUB-17, 19)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from postroom.agent.routing.correlation import read_instance_filters
from postroom.agent.routing.table import read_filters
from postroom.errors import NONE_APPLIED, DefinitionError, NotFound, suggest_names
from postroom.filters.expression import Filter
from postroom.filters.text import format_filter, parse
from postroom.messagebox.configuration.properties import (
    can_read_correlation_values,
    read_deployed_properties,
    read_sensitive_keys,
)
from postroom.messagebox.connection import Connection
from postroom.messagebox.instances import read_service_names
from postroom.messagebox.stored_subscriptions import StoredSubscription as StoredSubscription
from postroom.messagebox.stored_subscriptions import (
    SubscriptionType,
    read_correlation_keys,
    read_subscriptions,
)
from postroom.operations.records import extend
from postroom.operations.redaction import build_hidden_filter, redact_filter
from postroom.properties import Property
from postroom.values import Value

_ID_LIMIT = 2**31

#: The maximum number of subscriptions that an error about an ambiguous name lists.
_MAX_LISTED = 10


@dataclass(frozen=True, kw_only=True)
class PredicateListing:
    """A predicate of a filter, with the number of its AND-group."""

    group: int
    property: str
    operator: str
    value: Value | None


@dataclass(frozen=True, kw_only=True)
class SubscriptionDetails(StoredSubscription):
    """A subscription with the predicates that messages are matched against. Values of an instance are redacted."""

    expression: Sequence[PredicateListing]


def list_subscriptions(
    connection: Connection,
    *,
    subscription_type: SubscriptionType | None = None,
    service: str | None = None,
    instance_id: uuid.UUID | None = None,
    limit: int | None = None,
) -> list[StoredSubscription]:
    """Return the subscriptions that meet the conditions, sorted by the name of their service.

    ``service`` may name a send port group. Raise NotFound if nothing has that name."""
    activation = None if subscription_type is None else subscription_type == "activation"
    conditions = {"activation": activation, "instance": instance_id, "limit": limit}
    found = _read(connection, service=service, **conditions)
    if service is None or found:
        return found
    names = read_service_names(connection)
    if service not in names:
        hint = suggest_names(service, names, "There are", none=NONE_APPLIED)
        raise NotFound(f"There is no service {service!r}.", hint=hint)
    return _read(connection, group=service, **conditions)


def find_subscription(connection: Connection, id_or_name: str) -> StoredSubscription:
    """Return the subscription with this id, or of the service with this name.

    An activation subscription is preferred to those of the service's instances. Raise NotFound if there is none, and
    DefinitionError if the name is ambiguous."""
    is_id = id_or_name.isdecimal() and int(id_or_name) < _ID_LIMIT
    found = _read(connection, id=int(id_or_name)) if is_id else []
    # A service may have very many subscriptions: one for each instance that waits.
    found = found or _read(connection, service=id_or_name, activation=True, limit=_MAX_LISTED + 1)
    found = found or _read(connection, service=id_or_name, limit=_MAX_LISTED + 1)
    found = found or _read(connection, group=id_or_name, limit=_MAX_LISTED + 1)
    if len(found) == 1:
        return found[0]
    if found:
        count = f"more than {_MAX_LISTED}" if len(found) > _MAX_LISTED else str(len(found))
        ids = ", ".join(
            f"{subscription.subscription_id}{_describe_owner(subscription, id_or_name)}"
            for subscription in found[:_MAX_LISTED]
        )
        raise DefinitionError(f"{id_or_name!r} has {count} subscriptions.", hint=f"Give the id of one: {ids}.")
    raise NotFound(
        f"There is no subscription {id_or_name!r}.",
        why="A send port has a subscription while it is enlisted.",
        hint="See 'postroom subscription list'. 'postroom port enlist NAME' creates a subscription.",
    )


def get_subscription_details(connection: Connection, id_or_name: str) -> SubscriptionDetails:
    """Return the subscription that ``find_subscription`` finds, with its predicates."""
    found = find_subscription(connection, id_or_name)
    filter = _read_redacted_filters(connection, [found])[found.subscription_id]
    expression = [
        PredicateListing(
            group=number,
            property=predicate.property.dotted_name,
            operator=predicate.operator.symbol,
            value=predicate.value,
        )
        for number, group in enumerate(filter.groups, 1)
        for predicate in group
    ]
    return extend(found, SubscriptionDetails, expression=expression)


def _describe_owner(subscription: StoredSubscription, name: str) -> str:
    """Return what distinguishes this subscription from others of the same name."""
    if subscription.group is None:
        return " (its own)" if subscription.instance_id is None else ""
    return f" ({subscription.service_name})" if subscription.group == name else f" (through {subscription.group})"


def read_subscription_filters(connection: Connection, subscriptions: list[StoredSubscription]) -> dict[int, Filter]:
    """Return the filters, built from the stored predicates, by subscription id."""
    properties = {prop.key: prop for prop in read_deployed_properties(connection)}
    activations = [subscription.subscription_id for subscription in subscriptions if subscription.instance_id is None]
    waiting = [subscription.subscription_id for subscription in subscriptions if subscription.instance_id is not None]
    stored = read_filters(connection, activations, properties) | read_instance_filters(connection, waiting, properties)
    return {
        subscription.subscription_id: restore_written_order(
            stored[subscription.subscription_id], subscription.filter, properties.values()
        )
        for subscription in subscriptions
        if subscription.subscription_id in stored  # it may have been removed and purged in the meantime
    }


def _read_redacted_filters(connection: Connection, subscriptions: list[StoredSubscription]) -> dict[int, Filter]:
    """Return the filters with hidden values, by subscription id.

    The values that an instance waits for come from a message. Values of sensitive properties are hidden (SEC-14). From
    logins that may not read messages, all values are hidden (SEC-13)."""
    waiting = [subscription for subscription in subscriptions if subscription.instance_id is not None]
    shown = read_subscription_filters(
        connection, [subscription for subscription in subscriptions if subscription.instance_id is None]
    )
    if waiting and can_read_correlation_values(connection):
        hidden = read_sensitive_keys(connection)
        shown |= {
            key: redact_filter(filter, hidden) for key, filter in read_subscription_filters(connection, waiting).items()
        }
    elif waiting:
        keys = read_correlation_keys(connection, [subscription.subscription_id for subscription in waiting])
        shown |= {subscription_id: build_hidden_filter(waited) for subscription_id, waited in keys.items()}
    return shown


def restore_written_order(stored: Filter, text: str, properties: Iterable[Property]) -> Filter:
    """Return the stored filter with its predicates in the order of the text.

    If the text is not the same filter, return the stored filter as it is."""
    try:
        written = parse(text, properties)
    except DefinitionError:
        return stored
    is_same = set(map(frozenset, written.groups)) == set(map(frozenset, stored.groups))
    return written if is_same else stored


def _read(connection: Connection, **conditions: Any) -> list[StoredSubscription]:
    found = read_subscriptions(connection, **conditions)
    shown = _read_redacted_filters(
        connection, [subscription for subscription in found if subscription.instance_id is not None]
    )
    return [
        replace(subscription, filter=format_filter(shown[subscription.subscription_id]))
        if subscription.subscription_id in shown
        else subscription
        for subscription in found
    ]
