"""Reads what a publish needs to route messages, and locks it until COMMIT.

The columns of a subscription are those of ``Subscriber.from_row`` in ``agent/routing/table.py``, in its order.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from postroom.messagebox.connection import Connection, read_blocking, read_value
from postroom.messagebox.statements import statement
from postroom.messagebox.storage.stored_values import StoredValue

Row = tuple[Any, ...]


class RoutingLock(NamedTuple):
    """The state that the routing lock fixes until COMMIT."""

    version: int
    message_log: int
    part_log: int
    changed_here: bool
    """True if this transaction has changed the subscriptions itself. No other transaction sees that version yet."""


def lock_routing(connection: Connection) -> RoutingLock:
    """Lock subscriptions, states and hosts against changes until COMMIT."""
    row = connection.execute(statement("queries/lock_routing")).fetchone()
    assert row is not None
    return RoutingLock(*row)


def lock_instance_subscriptions(connection: Connection, ids: list[int]) -> bool:
    """Lock the instances that some subscriptions belong to. Return False if one of them has completed."""
    query = "SELECT all_there FROM lock_instance_subscriptions(%s::bigint[])"
    return read_value(connection, query, ids) is True


def lock_ordered_instances(connection: Connection, instances: Collection[uuid.UUID]) -> None:
    """Lock the order of the messages of some instances."""
    connection.execute("SELECT lock_ordered_instances(%s::uuid[])", (list(instances),))


def read_routing_versions(connection: Connection) -> tuple[int, int]:
    """Return the routing version, and the version below which removals were purged."""
    row = connection.execute("SELECT version, rebuild_below FROM routing_version").fetchone()
    assert row is not None
    return row[0], row[1]


def read_changed_subscriptions(connection: Connection, after: int) -> list[Row]:
    """Return the activation subscriptions that changed after a version, each with whether it was removed."""
    return connection.execute(statement("queries/changed_subscriptions"), (after,)).fetchall()


def read_predicates(connection: Connection, ids: list[int]) -> Iterable[Row]:
    """Return the predicates of some subscriptions: subscription, group, property key, operator and stored value."""
    return connection.execute(statement("queries/read_predicates"), (ids,))


def read_property_lists(connection: Connection) -> dict[str, dict[int, tuple[str, ...]]]:
    """Return the properties of every ``correlation`` type and of every ``convoy`` set."""
    lists: dict[str, dict[int, tuple[str, ...]]] = {"correlation": {}, "convoy": {}}
    for kind, number, keys in connection.execute(statement("queries/read_property_lists")):
        lists[kind][number] = tuple(keys)
    return lists


def read_addressees(connection: Connection) -> list[Row]:
    """Return the send ports and send port groups of all hosts that messages can be directed to."""
    # A function, not the tables: a host can read only its own ports, but may direct messages to others.
    return connection.execute("SELECT * FROM addressees()").fetchall()


def read_login(connection: Connection) -> tuple[str, bool]:
    """Return the account of this session, and whether it may publish on behalf of others."""
    row = connection.execute("SELECT session_user::text, is_trusted()").fetchone()
    assert row is not None
    return row[0], row[1]


def find_instance_subscriptions(connection: Connection, hashes: list[int]) -> list[Row]:
    """Return the instance subscriptions with these hashes of their correlation values."""
    return read_blocking(connection, "SELECT * FROM find_instance_subscriptions(%s)", tuple, hashes)


def read_correlations(connection: Connection, ids: list[int]) -> Iterable[Row]:
    """Return some instance subscriptions with the properties and values by which they wait."""
    return connection.execute(statement("queries/read_correlations"), (ids,))


def locate_convoy_instances(
    connection: Connection,
    convoy_sets: list[int],
    values: Sequence[list[str | None]],
    offered: Sequence[uuid.UUID],
    *,
    find_running: bool,
) -> Iterable[Row]:
    """Return the number of each convoy, counted from 1, its instance, and whether that runs. ``values`` has three
    columns. A convoy without an instance gets the one that is offered."""
    query = (
        "SELECT number, instance_id, is_running FROM locate_convoy_instances"
        "(%s::int[], %s::text[], %s::text[], %s::text[], %s::uuid[], %s)"
    )
    return connection.execute(query, (convoy_sets, *values, list(offered), find_running))


def find_subscribers(
    connection: Connection,
    batch_id: uuid.UUID,
    properties: Iterable[tuple[uuid.UUID, StoredValue, str]],
    predicates: Iterable[tuple[uuid.UUID, str, str]],
) -> tuple[int, list[Row]]:
    """Return the routing version, and the subscribers of messages with these promoted values and message predicates.

    Takes the routing lock, so the subscriptions cannot change before the publish commits."""
    with connection.cursor() as cursor:
        cursor.executemany(
            statement("queries/insert_message_property"),
            [(batch_id, message_id, *value, key) for message_id, value, key in properties],
        )
        cursor.executemany(
            statement("queries/insert_message_predicate"), [(batch_id, *predicate) for predicate in predicates]
        )
    version = lock_routing(connection).version
    rows = connection.execute(statement("queries/find_subscribers"), {"batch": batch_id}).fetchall()
    for table in ("message_properties", "message_predicates"):
        connection.execute(f"DELETE FROM {table} WHERE batch_id = %s", (batch_id,))
    return version, rows


def find_new_subscriptions(
    connection: Connection, ids: list[int], *, seq: int, service_id: uuid.UUID | None, group: str | None
) -> list[int]:
    """Return those of some subscriptions that the copy of a message for a service was not routed to before."""
    rows = connection.execute(
        statement("queries/find_new_subscriptions"), {"ids": ids, "seq": seq, "service": service_id, "group": group}
    )
    return [subscription_id for (subscription_id,) in rows]


def find_report(connection: Connection, instance_id: uuid.UUID) -> uuid.UUID | None:
    """Return the instance of the routing failure report about an instance, if there is one."""
    report: uuid.UUID | None = read_value(connection, "SELECT report_of(%s)", instance_id)
    return report
