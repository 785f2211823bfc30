"""Service instances: listed, counted, and changed by operators."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from postroom.messagebox.connection import Connection, read_records
from postroom.messagebox.instance_states import InstanceState
from postroom.messagebox.statements import statement

#: The state of the row of count_instances_<host> with the messages that orchestrations hold.
_STATE_REFERENCES = 0


@dataclass(frozen=True, kw_only=True)
class InstanceCount:
    """The instances of a host in one state. Without a state these are the messages that orchestrations hold."""

    host: str
    state: InstanceState | None
    instances: int
    messages: int
    age: float
    """Of the oldest message, in seconds."""


def count_instances_of_host(connection: Connection, host: str) -> list[InstanceCount]:
    """Count the instances of a host. States without instances are included."""
    rows = connection.execute(f"SELECT state, instances, messages, age FROM count_instances_{host.lower()}()")
    known = {state: (instances, messages, age or 0.0) for state, instances, messages, age in rows}
    counts = []
    for state in (*InstanceState, None):
        instances, messages, age = known.get(_STATE_REFERENCES if state is None else int(state), (0, 0, 0.0))
        counts.append(InstanceCount(host=host, state=state, instances=instances, messages=messages, age=age))
    return counts


@dataclass(frozen=True, kw_only=True)
class PortQueues:
    """A send port, its application and its host, and the number of its messages in the queues."""

    port_id: uuid.UUID
    application: str
    host: str
    waiting: int
    retrying: int
    scheduled: int
    next_attempt_at: datetime | None
    suspended: int


def count_queues_of_ports(connection: Connection, *, application: str | None = None) -> list[PortQueues]:
    """Count the messages of the send ports of one application, or of all, sorted by the name of the port."""
    return read_records(connection, PortQueues, statement("queries/list_send_ports"), {"application": application})
