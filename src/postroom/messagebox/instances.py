"""Service instances: listed, counted, and changed by operators."""

from __future__ import annotations

from dataclasses import dataclass

from postroom.messagebox.connection import Connection
from postroom.messagebox.instance_states import InstanceState

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
