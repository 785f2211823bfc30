"""The instances that wait for a message: found by the values that it carries, as a publish finds them.

Those that wait for other values, of which there may be a million, are not misses that anybody would look for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from postroom.agent.routing.correlation import Correlation, correlations_in, find_waiting, read_waiting
from postroom.agent.routing.table import RoutingTable, read_property_lists
from postroom.filters.authorisation import NOTHING_TO_SHOW
from postroom.message import Context
from postroom.messagebox.configuration import application_properties, hosts
from postroom.messagebox.connection import Connection
from postroom.operations.explain.subscribers import Subscriber
from postroom.operations.redaction import can_read_correlation_values
from postroom.properties import Property


def find_waiting_instances(
    connection: Connection, contexts: Sequence[Context], properties: Sequence[Property]
) -> list[list[Subscriber] | None]:
    """For each message the instance subscriptions that it meets. None where there may be some and the login may not see
    what instances wait for."""
    known = RoutingTable()
    known.correlation_types = read_property_lists(connection)["correlation"]
    known.value_types = {prop.key: prop.value_type for prop in properties}
    found: list[list[Subscriber]] = [[] for _ in contexts]
    wanted: defaultdict[Correlation, list[int]] = defaultdict(list)
    for row, context in enumerate(contexts):
        for correlation in correlations_in(context.promoted, 1, known):
            wanted[correlation].append(row)
    if wanted and not can_read_correlation_values(connection):
        unreadable = {row for rows in wanted.values() for row in rows}
        return [None if row in unreadable else [] for row in range(len(contexts))]
    waiting = find_waiting(connection, wanted)
    if not waiting:
        return [*found]
    by_key = {prop.key: prop for prop in properties}
    filters = read_waiting(connection, [one.subscription_id for one, _ in waiting], by_key)
    names = {host.host_id: host.name for host in hosts(connection)}
    shown = application_properties(connection)
    for one, rows in waiting:
        if one.subscription_id not in filters:
            continue  # it ended in this very moment
        subscriber = Subscriber(
            name=f"{one.service_name}, instance {one.instance_id}",
            state="started" if one.started else "stopped",
            host=names[one.host_id],
            subscription_id=one.subscription_id,
            filter=filters[one.subscription_id],
            shown=shown.get(one.host_id, NOTHING_TO_SHOW),
            waiting=True,
        )
        for row in rows:
            found[row].append(subscriber)
    return [*found]
