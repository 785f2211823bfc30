"""Creating subscriptions: a filter's predicates, each into the table that it belongs to."""

from __future__ import annotations

import uuid

from postroom.filters.access import predicate_tables
from postroom.filters.expression import Filter
from postroom.filters.text import format_filter
from postroom.messagebox.configuration import Host, SendPortGroup, ServiceClass
from postroom.messagebox.connection import Connection
from postroom.messagebox.stored_values import to_stored


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
    name = host.name.lower()
    row = connection.execute(
        f"SELECT create_subscription_{name}(%s::smallint, %s, %s, %s, %s::smallint)",
        (service_class, service_id, service_name, format_filter(filter), priority),
    ).fetchone()
    assert row is not None
    subscription_id = int(row[0])
    if group is not None:
        connection.execute(
            "UPDATE subscriptions SET group_id = %s, group_name = %s WHERE id = %s",
            (group.group_id, group.name, subscription_id),
        )
    with connection.cursor() as cursor:
        cursor.executemany(
            f"SELECT insert_predicate_{name}(%s, %s, %s::smallint, %s, %s::smallint, %s, %s::bigint, %s::numeric,"
            " %s::double precision)",
            [
                (
                    *(subscription_id, number, table, predicate.property.key, predicate.operator),
                    *to_stored(predicate.value),
                )
                for number, group in enumerate(filter.groups)
                for predicate, table in zip(group, predicate_tables(group), strict=True)
            ],
        )
    return subscription_id


def deploy_property(connection: Connection, key: str, value_type: int) -> None:
    """Makes a property known, so that filters can use it and messages are routed by it."""
    connection.execute(
        "INSERT INTO properties (key, value_type) VALUES (%s, %s) ON CONFLICT (key) DO NOTHING", (key, value_type)
    )
