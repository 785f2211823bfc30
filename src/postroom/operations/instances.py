"""Service instances: what there is, and why it is suspended (INS-01, 11)."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import IntEnum
from typing import Any, Literal

from postroom.errors import NotFound
from postroom.messagebox.configuration import ServiceClass
from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement
from postroom.messagebox.writing import Cause, Task

#: What instances can be counted by.
GroupedBy = Literal["host", "port", "error", "reason", "adapter", "uri"]

#: As many as belong into one transaction, and as many as one look finds, which reads the queues whole.
_AT_A_TIME = 1_000
_FOUND_AT_A_TIME = 20_000


class InstanceState(IntEnum):
    """BizTalk's codes. A messaging instance that waits for its next attempt is dehydrated."""

    READY_TO_RUN = 1
    ACTIVE = 2
    SUSPENDED = 4
    DEHYDRATED = 8
    SUSPENDED_NOT_RESUMABLE = 32

    @property
    def words(self) -> str:
        return _STATES[self]


_STATES = {
    InstanceState.READY_TO_RUN: "ready to run",
    InstanceState.ACTIVE: "active",
    InstanceState.SUSPENDED: "suspended",
    InstanceState.DEHYDRATED: "waiting to retry",
    InstanceState.SUSPENDED_NOT_RESUMABLE: "suspended, not resumable",
}


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One service instance: a message on its way to one subscriber, or one that came in and could not go on; or an
    instance that several messages have joined."""

    instance_id: uuid.UUID
    state: InstanceState
    host: str
    service_class: ServiceClass
    service_id: uuid.UUID | None
    service: str | None
    """The send port or receive location; none for a routing failure report (NRF-04)."""
    port: str | None
    """The send port or receive port."""
    subscription_id: int | None
    message_id: uuid.UUID
    task: Task
    attempt: int
    priority: int
    seq: int
    enqueued_at: datetime
    retry_at: datetime | None
    suspended_at: datetime | None
    cause: Cause | None
    error_code: str | None
    error_description: str | None
    adapter: str | None
    uri: str | None
    related_instance_id: uuid.UUID | None
    """Of a routing failure report: the instance that it is about."""
    messages: int = 1
    """How many messages it has in the queues. What is said of the message here is said of the first of them."""

    @property
    def called(self) -> str:
        """What it belongs to, for people: a routing failure report belongs to nothing."""
        report = self.cause is Cause.ROUTING_FAILURE_REPORT
        return self.service or ("routing failure report" if report else "")

    @property
    def reason(self) -> str:
        """The first line of the description: what happened."""
        return (self.error_description or "").partition("\n")[0]


@dataclass(frozen=True, kw_only=True)
class InstanceQuery:
    """Which instances; without conditions, all. ``port`` is the name of a send port, receive port or location."""

    states: Collection[InstanceState] | None = None
    host: str | None = None
    port: str | None = None
    error_code: str | None = None
    message_id: uuid.UUID | None = None
    interchange_id: uuid.UUID | None = None
    limit: int | None = None

    def parameters(self) -> dict[str, Any]:
        return {
            "ids": None,
            "states": None if self.states is None else [int(state) for state in self.states],
            "host": self.host,
            "port": self.port,
            "error": self.error_code,
            "message": self.message_id,
            "interchange": self.interchange_id,
            "after": None,
            "direction": -1,
            "limit": self.limit,
        }


@dataclass(frozen=True, kw_only=True)
class InstanceCount:
    """So many instances in one state that agree in what they are counted by."""

    state: InstanceState
    value: str | None
    count: int
    oldest: datetime
    newest: datetime


def list_instances(connection: Connection, query: InstanceQuery) -> list[Instance]:
    """The instances that meet the query, the latest first."""
    return _read(connection, query.parameters())


def instance_with_id(connection: Connection, instance_id: uuid.UUID) -> Instance:
    """The instance, or NotFound."""
    found = _read(connection, InstanceQuery(limit=1).parameters() | {"ids": [instance_id]})
    if not found:
        raise NotFound(
            f"There is no instance {instance_id}.",
            why="An instance is gone as soon as its message is delivered, or when it is terminated.",
            hint="See 'postroom instance list'.",
        )
    return found[0]


def count_instances(connection: Connection, query: InstanceQuery, by: GroupedBy) -> list[InstanceCount]:
    """How many instances meet the query, the largest group first."""
    rows = connection.execute(statement("queries/count_instances"), query.parameters() | {"by": by})
    return [
        InstanceCount(state=InstanceState(state), value=value, count=count, oldest=oldest, newest=newest)
        for state, value, count, oldest, newest in rows
    ]


def in_pieces(connection: Connection, query: InstanceQuery) -> Iterator[list[uuid.UUID]]:
    """The ids of the instances that meet the query now, the first ones first, as many as belong into one transaction.

    An instance keeps its number when it is resumed, so that one that fails again at once is not met twice."""
    remaining = query.limit
    after = None
    while remaining is None or remaining > 0:
        limit = _FOUND_AT_A_TIME if remaining is None else min(_FOUND_AT_A_TIME, remaining)
        parameters = replace(query, limit=limit).parameters() | {"direction": 1, "after": after}
        found = _read(connection, parameters)
        if not found:
            return
        after = found[-1].seq
        remaining = None if remaining is None else remaining - len(found)
        ids = [instance.instance_id for instance in found]
        yield from (ids[start : start + _AT_A_TIME] for start in range(0, len(ids), _AT_A_TIME))


def _read(connection: Connection, parameters: dict[str, Any]) -> list[Instance]:
    return [_instance(row) for row in connection.execute(statement("queries/list_instances"), parameters)]


_FIELDS = (
    *("instance_id", "state", "host", "service_class", "service_id", "service", "port", "subscription_id"),
    *("message_id", "task", "attempt", "priority", "seq", "enqueued_at", "retry_at", "suspended_at", "cause"),
    *("error_code", "error_description", "adapter", "uri", "related_instance_id", "messages"),
)


def _instance(row: tuple[Any, ...]) -> Instance:
    values = dict(zip(_FIELDS, row, strict=True))
    return Instance(
        **{
            **values,
            "state": InstanceState(values["state"]),
            "service_class": ServiceClass(values["service_class"]),
            "task": Task(values["task"]),
            "cause": None if values["cause"] is None else Cause(values["cause"]),
        }
    )
