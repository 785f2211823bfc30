"""Changes of one instance, and of all that match a query."""

from __future__ import annotations

import uuid
from collections import Counter

from postroom.messagebox.connection import Connection
from postroom.messagebox.instances import InstanceQuery
from postroom.operations.instances.changes import change_all, change_instances


def resume(connection: Connection, instance_id: uuid.UUID) -> None:
    change_instances(connection, "resume", [instance_id])


def suspend(connection: Connection, instance_id: uuid.UUID) -> bool:
    """Suspend an instance. Return False if its suspension is pending."""
    return not change_instances(connection, "suspend", [instance_id]).pending


def reroute(connection: Connection, instance_id: uuid.UUID) -> None:
    change_instances(connection, "reroute", [instance_id])


def terminate(connection: Connection, instance_id: uuid.UUID, *, all_messages: bool = False) -> bool:
    """Terminate an instance. Return False if its termination is pending."""
    return not change_instances(connection, "terminate", [instance_id], all_messages=all_messages).pending


def resume_all(connection: Connection, query: InstanceQuery) -> int:
    return change_all(connection, "resume", query).changed


def suspend_all(connection: Connection, query: InstanceQuery) -> int:
    return change_all(connection, "suspend", query).changed


def reroute_all(connection: Connection, query: InstanceQuery) -> Counter[str]:
    """Reroute instances. Return their number by host."""
    return Counter(change_all(connection, "reroute", query).hosts)


def terminate_all(connection: Connection, query: InstanceQuery, *, all_messages: bool = False) -> int:
    return change_all(connection, "terminate", query, all_messages=all_messages).changed
