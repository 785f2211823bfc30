"""Subscriptions of send ports, and the properties that filters can use."""

from __future__ import annotations

import uuid

from postroom.filters.expression import Filter
from postroom.messagebox.configuration import Host, SendPortGroup, ServiceClass
from postroom.messagebox.connection import Connection
from postroom.messagebox.service_subscriptions import ServiceSubscriptions, SubscribingService
from postroom.messagebox.statements import statement


def create_subscription(
    connection: Connection,
    host: Host,
    *,
    service_class: ServiceClass,
    service_id: uuid.UUID,
    service_name: str,
    filter: Filter,
    priority: int,
    group: SendPortGroup | None = None,
) -> int:
    """An activation subscription, stopped, through the host's own procedures; inside the caller's transaction.

    ``group`` is the send port group that it comes through."""
    service = SubscribingService(service_id=service_id, name=service_name)
    made = ServiceSubscriptions(host, service_class).activate(connection, service, filter, priority=priority)
    if group is not None:
        connection.execute(
            "UPDATE subscriptions SET group_id = %s, group_name = %s WHERE id = %s", (group.group_id, group.name, made)
        )
    return made


def deploy_property(connection: Connection, key: str, value_type: int, *, sensitive: bool = False) -> None:
    """Makes a property known, so that filters can use it and messages are routed by it. Sensitive once is for ever."""
    connection.execute(statement("queries/deploy_property"), (key, value_type, sensitive))
