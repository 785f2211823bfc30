"""Service instances: listed and counted (INS-01, 05, 08, 09, 11)."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from postroom.clock import format_duration
from postroom.errors import NotFound
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection, read_records
from postroom.messagebox.orchestrations import format_name
from postroom.messagebox.queues import Cause, QueueTask
from postroom.messagebox.statements import statement

#: The fields that instances can be grouped by.
GroupBy = Literal["host", "port", "error", "reason", "adapter", "uri"]

#: The order of a listing by number: the oldest first, or the latest first.
Direction = Literal["ASC", "DESC"]


class InstanceState(StrEnum):
    """The states of an instance, in the order of listings. An orchestration that waits is dehydrated. A messaging
    instance that waits for its next attempt is retrying, and one that waits for the service window of its port is
    scheduled (INS-03)."""

    READY_TO_RUN = "ready to run"
    ACTIVE = "active"
    DEHYDRATED = "waiting"
    RETRYING = "waiting to retry"
    SCHEDULED = "scheduled"
    SUSPENDED = "suspended"
    SUSPENDED_NOT_RESUMABLE = "suspended, not resumable"


_SUSPENDED = frozenset({InstanceState.SUSPENDED, InstanceState.SUSPENDED_NOT_RESUMABLE})


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One service instance: a message for one subscriber, a received message that failed, the messages of an ordered
    send port or a convoy, or an orchestration instance."""

    instance_id: uuid.UUID
    state: InstanceState
    host: str
    service_class: ServiceClass
    service_id: uuid.UUID | None
    service: str | None
    """The send port or receive location. None for a routing failure report (NRF-04)."""
    port: str | None
    """The send port or receive port."""
    subscription_id: int | None
    message_id: uuid.UUID
    task: QueueTask
    attempt: int
    """The number of the attempt that is made next, from 1."""
    priority: int
    seq: int
    enqueued_at: datetime
    retry_at: datetime | None
    timer_at: datetime | None
    """When the next timer of an orchestration is due."""
    suspended_at: datetime | None
    cause: Cause | None
    error_code: str | None
    error_description: str | None
    adapter: str | None
    uri: str | None
    related_instance_id: uuid.UUID | None
    """The instance that a routing failure report is about, or the first of them."""
    last_related_instance_id: uuid.UUID | None = None
    """The last instance that a routing failure report is about. The ids of the instances are consecutive."""
    messages: int = 1
    """The number of its messages in the queues. The fields about a message describe the first."""
    service_removed: bool = False
    """True if the send port or receive location was removed and is not declared again."""
    on_backup: bool = False
    """True if the backup transport of the send port makes the next attempt."""
    version: int | None = None
    """The version of an orchestration."""
    reason: str = field(init=False)
    """The first line of the error description. If that is a traceback: the error, which follows the calls, not
    its causes."""
    since: datetime = field(init=False)
    """When it was suspended or enqueued."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", find_reason(self.error_description or ""))
        object.__setattr__(self, "since", self.suspended_at or self.enqueued_at)

    @property
    def display_name(self) -> str:
        """The name of the service, of an orchestration with its version, or "routing failure report", which has no
        service."""
        if self.service is not None and self.version is not None:
            return format_name(self.service, self.version)
        is_report = self.cause is Cause.ROUTING_FAILURE_REPORT
        return self.service or ("routing failure report" if is_report else "")

    @property
    def related_instances(self) -> int:
        """The number of instances that a routing failure report was written about."""
        if self.related_instance_id is None or self.last_related_instance_id is None:
            return 0
        return self.last_related_instance_id.int - self.related_instance_id.int + 1


def find_reason(description: str) -> str:
    """Return the first line of a description, or the error of a traceback, which follows the calls."""
    lines = description.splitlines() or [""]
    if not lines[0].startswith("Traceback "):
        return lines[0]
    start = max(number for number, line in enumerate(lines) if line.startswith("Traceback "))
    return next((line for line in lines[start + 1 :] if not line.startswith(" ")), lines[0])


@dataclass(frozen=True, kw_only=True)
class InstanceQuery:
    """Conditions for instances. ``port`` is the name of a port, send port group, receive location or orchestration.

    Two services can have the same name if one of them was removed: ``removed`` selects only instances of removed ones,
    and ``services`` are ids, which are unique."""

    ids: Collection[uuid.UUID] | None = None
    states: Collection[InstanceState] | None = None
    host: str | None = None
    port: str | None = None
    removed: bool = False
    services: Collection[uuid.UUID] | None = None
    tasks: Collection[QueueTask] | None = None
    error_code: str | None = None
    message_id: uuid.UUID | None = None
    interchange_id: uuid.UUID | None = None
    unreceived: bool = False
    """Select the messages that ended orchestration instances have not received too, in addition to ``states`` and
    ``tasks``."""
    limit: int | None = None

    def parameters(self) -> dict[str, Any]:
        """The parameters of the SQL queries."""
        return {
            "ids": None if self.ids is None else list(self.ids),
            "states": None if self.states is None else list(self.states),
            "suspended": self.states is not None and _SUSPENDED.issuperset(self.states),
            "host": self.host,
            "port": self.port,
            "removed": self.removed,
            "services": None if self.services is None else list(self.services),
            "tasks": None if self.tasks is None else list(self.tasks),
            "error": self.error_code,
            "message": self.message_id,
            "interchange": self.interchange_id,
            "unreceived": self.unreceived,
            "limit": self.limit,
        }


@dataclass(frozen=True, kw_only=True)
class InstanceGroup:
    """The number of instances in one state with one value of the field that they are grouped by."""

    state: InstanceState
    value: str | None
    count: int
    oldest: datetime
    newest: datetime


@dataclass(frozen=True, kw_only=True)
class QueueCount:
    """The number of messages of one host in one state, and how long the oldest has waited."""

    host: str
    state: InstanceState
    count: int
    oldest: datetime | None
    age: str
    age_seconds: float | None


@dataclass(frozen=True, kw_only=True)
class SuspendedCount:
    """The number of suspended messages or instances, and when the last of them was suspended. An ordered send port
    counts as one, however often its first message fails."""

    count: int
    last_at: datetime


class Suspended(NamedTuple):
    """What is suspended: messages, or instances of an orchestration. The name of the service is empty if it has
    none."""

    service: str
    what: Literal["message", "instance"]
    error_code: str


def list_instances(connection: Connection, query: InstanceQuery) -> list[Instance]:
    """Return the instances that match the query, the latest first."""
    return _read(connection, query.parameters(), "DESC")


def get_instance(connection: Connection, instance_id: uuid.UUID) -> Instance:
    """Return the instance. Raise NotFound if there is none with that id."""
    found = list_instances(connection, InstanceQuery(ids=[instance_id], limit=1))
    if not found:
        raise NotFound(
            f"There is no instance {instance_id}.",
            why="An instance is deleted when its message is delivered, and when it ends or is terminated.",
            hint="See 'postroom instance list'.",
        )
    return found[0]


def count_instances(connection: Connection, query: InstanceQuery, by: GroupBy) -> list[InstanceGroup]:
    """Count the instances that match the query, the largest group first."""
    rows = connection.execute(_with_conditions("queries/count_instances"), query.parameters() | {"by": by})
    return [
        InstanceGroup(state=InstanceState(state), value=value, count=count, oldest=oldest, newest=newest)
        for state, value, count, oldest, newest in rows
    ]


def count_states(connection: Connection, query: InstanceQuery) -> dict[InstanceState, int]:
    """Count the instances that match the query, by state."""
    counts: Counter[InstanceState] = Counter()
    for count in count_instances(connection, query, "host"):
        counts[count.state] += count.count
    return dict(counts)


def read_service_names(connection: Connection) -> list[str]:
    """Return the names by which instances can be selected: of ports, groups, locations and orchestrations, and of
    services that still have instances."""
    return [name for (name,) in connection.execute(statement("queries/list_service_names"))]


def find_new_name(connection: Connection, name: str) -> str | None:
    """Return the name that a send port or location with this name was given last."""
    row = connection.execute(statement("queries/find_new_name"), {"name": name}).fetchone()
    return None if row is None else row[0]


def read_suspended_codes(connection: Connection) -> set[str]:
    """Return the error codes of the suspended instances. An adapter may define codes of its own."""
    rows = connection.execute("SELECT DISTINCT error_code FROM suspended_queue WHERE error_code IS NOT NULL")
    return {code for (code,) in rows}


def count_queues(connection: Connection, *, everything: bool = True) -> list[QueueCount]:
    """Count the messages of every host by state. States without messages are included if ``everything`` is True."""
    rows = connection.execute(statement("queries/count_queues"))
    return [
        QueueCount(
            host=host,
            state=InstanceState(state),
            count=count,
            oldest=oldest,
            age=format_duration(age),
            age_seconds=None if age is None else age.total_seconds(),
        )
        for host, state, count, oldest, age in rows
        if count or everything
    ]


def count_suspended(connection: Connection) -> dict[Suspended, SuspendedCount]:
    """Count the suspended messages and orchestration instances by service and error code."""
    rows = connection.execute(statement("queries/count_suspended"))
    return {
        Suspended(service, what, code): SuspendedCount(count=count, last_at=last_at)
        for service, what, code, count, last_at in rows
    }


def select_instances(direction: Direction) -> str:
    """Return the text of the query, with the parameters of an InstanceQuery."""
    return _with_conditions("queries/list_instances").replace("__DIRECTION__", direction)


def _with_conditions(name: str) -> str:
    return statement(name).replace("__CONDITIONS__", statement("queries/instance_conditions"))


def _read(connection: Connection, parameters: dict[str, Any], direction: Direction) -> list[Instance]:
    return [_to_instance(row) for row in connection.execute(select_instances(direction), parameters)]


#: The fields in the order of the columns of list_instances.sql.
_FIELDS = [each.name for each in fields(Instance) if each.init]


def _to_instance(row: tuple[Any, ...]) -> Instance:
    values = dict(zip(_FIELDS, row, strict=True))
    return Instance(
        **{
            **values,
            "state": InstanceState(values["state"]),
            "service_class": ServiceClass(values["service_class"]),
            "task": QueueTask(values["task"]),
            "cause": None if values["cause"] is None else Cause(values["cause"]),
            "attempt": values["attempt"] + 1,  # the queues count retries
        }
    )


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
        instances, messages, age = known.get(state, (0, 0, 0.0))
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


def count_backlog(connection: Connection, services: Collection[uuid.UUID]) -> dict[uuid.UUID, dict[InstanceState, int]]:
    """Count the instances of each service by state. Services without instances are left out."""
    counts: dict[uuid.UUID, dict[InstanceState, int]] = {}
    if services:
        for service_id, state, count in connection.execute(statement("queries/count_backlog"), (list(services),)):
            counts.setdefault(service_id, {})[InstanceState(state)] = count
    return counts
