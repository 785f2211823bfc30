"""What stands in the queues of each host."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement
from postroom.operations.instances import InstanceState


@dataclass(frozen=True, kw_only=True)
class QueueCount:
    """The instances of one host in one state; the oldest is the one that waits for the longest time."""

    host: str
    state: InstanceState
    count: int
    oldest: datetime | None
    age: timedelta | None


def count_queues(connection: Connection) -> list[QueueCount]:
    """Every queue of every host, empty ones too."""
    rows = connection.execute(statement("queries/count_queues"))
    return [
        QueueCount(host=host, state=InstanceState(state), count=count, oldest=oldest, age=age)
        for host, state, count, oldest, age in rows
    ]
