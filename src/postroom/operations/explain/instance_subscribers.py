"""Find the instances that wait for a message, by the correlation values of the message, as a publish does.

Instances that wait for other values are not reported as misses: there may be a million of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from postroom.agent.routing.correlation import (
    Correlation,
    find_correlations,
    find_instance_subscribers,
    read_instance_filters,
)
from postroom.agent.routing.table import Routing
from postroom.filters.authorisation import NO_APPLICATION_PROPERTIES
from postroom.message import Context
from postroom.messagebox.configuration.hosts import read_application_properties, read_hosts
from postroom.messagebox.configuration.properties import can_read_correlation_values
from postroom.messagebox.connection import Connection
from postroom.messagebox.routing import read_property_lists
from postroom.operations.explain.subscribers import PossibleSubscriber
from postroom.properties import Property


def find_waiting_instances(
    connection: Connection, contexts: Sequence[Context], properties: Sequence[Property]
) -> list[list[PossibleSubscriber] | None]:
    """Return the instance subscriptions that each message matches.

    The entry of a message is None if there may be some, but the login may not read the correlation values."""
    routing = Routing(
        correlation_types=read_property_lists(connection)["correlation"],
        value_types={prop.key: prop.value_type for prop in properties},
    )
    found: list[list[PossibleSubscriber]] = [[] for _ in contexts]
    wanted: defaultdict[Correlation, list[int]] = defaultdict(list)
    for row, context in enumerate(contexts):
        for correlation in find_correlations(context.promoted, 1, routing):
            wanted[correlation].append(row)
    if wanted and not can_read_correlation_values(connection):
        unreadable = {row for rows in wanted.values() for row in rows}
        return [None if row in unreadable else [] for row in range(len(contexts))]
    waiting = find_instance_subscribers(connection, wanted)
    if not waiting:
        return [*found]
    by_key = {prop.key: prop for prop in properties}
    filters = read_instance_filters(connection, [subscription.subscription_id for subscription, _ in waiting], by_key)
    names = {host.host_id: host.name for host in read_hosts(connection)}
    host_properties = read_application_properties(connection)
    for subscription, rows in waiting:
        if subscription.subscription_id not in filters:
            continue  # the instance ended in the meantime
        subscriber = PossibleSubscriber(
            name=f"{subscription.service_name}, instance {subscription.instance_id}",
            state="started" if subscription.started else "stopped",
            host=names[subscription.host_id],
            subscription_id=subscription.subscription_id,
            filter=filters[subscription.subscription_id],
            host_properties=host_properties.get(subscription.host_id, NO_APPLICATION_PROPERTIES),
            is_instance=True,
        )
        for row in rows:
            found[row].append(subscriber)
    return [*found]
