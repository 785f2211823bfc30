"""The backlog of removed send ports, receive locations and orchestrations: their instances, and what becomes of them.

The decision is stored in the transaction that removes the port. It is carried out afterwards, in transactions of a
thousand instances, because the removal blocks every publish. A command that is interrupted leaves the decision, and the
next ``apply`` of the application continues.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from postroom.messagebox.configuration.services import (
    Service,
    finish_backlog,
    read_removed_services,
)
from postroom.messagebox.connection import Connection
from postroom.messagebox.instances import InstanceQuery, InstanceState, count_states
from postroom.messagebox.queues import DELIVERIES
from postroom.operations.deployment.plan import ChangeKind
from postroom.operations.instances.changes import (
    change_all,
    format_rerouted,
    reroute_deliveries,
)
from postroom.operations.instances.preview import format_counts


class Backlog(StrEnum):
    """What becomes of the instances of a removed port, location or orchestration."""

    KEEP = "keep"
    REROUTE = "reroute"
    TERMINATE = "terminate"


#: The states of instances that are rerouted now, or after their attempt has ended.
_REROUTABLE = [state for state in InstanceState if state is not InstanceState.SUSPENDED_NOT_RESUMABLE]

_FUTURE = {Backlog.REROUTE: "will be rerouted", Backlog.TERMINATE: "will be terminated"}


@dataclass(frozen=True, kw_only=True)
class BacklogResult:
    """What was done with the backlog of one removed port or location."""

    name: str
    decision: Backlog
    count: int
    hosts: Mapping[str, int]
    """The number of instances that each host will route again."""
    active: int
    """Instances that could not be changed because a host was processing them. The next apply changes them."""

    def __str__(self) -> str:
        done = "rerouted" if self.decision is Backlog.REROUTE else "terminated"
        if self.decision is Backlog.REROUTE:
            instances = format_rerouted(self.hosts, of=self.name)
        else:
            instances = f"{self.count:,} {'instance' if self.count == 1 else 'instances'} of {self.name} terminated."
        if not self.active:
            return instances
        return f"{instances} {self.active:,} could not be {done} because a host is sending them: apply again."


def describe_backlog(counts: Mapping[InstanceState, int] | None, decision: Backlog | None, kind: ChangeKind) -> str:
    """Return the note of a plan about the backlog of a removed port or location."""
    if not counts:
        return ""
    if decision is None:
        return format_counts(counts)
    stays = "stays" if sum(counts.values()) == 1 else "stay"
    if kind is ChangeKind.ORCHESTRATION and decision is Backlog.REROUTE:
        return f"{format_counts(counts)}: what has started stays, the messages of the others will be rerouted"
    return f"{format_counts(counts)} {_FUTURE.get(decision, stays)}"


def describe_restored(counts: Mapping[InstanceState, int] | None, old_name: str | None) -> str:
    """Return the note of a plan about the instances that a port or location gets back when it is declared again, or
    takes over from ``old_name``."""
    if not counts:
        return ""
    return (
        f"gets back {format_counts(counts)}"
        if old_name is None
        else f"takes over {format_counts(counts)} of {old_name!r}"
    )


def build_backlog_problem(kind: ChangeKind, name: str, counts: Mapping[InstanceState, int]) -> str:
    """Return why a port or location cannot be removed without a decision about its backlog."""
    return (
        f"{kind} {name!r} cannot be removed: it still has {format_counts(counts)}. Decide what becomes of them with "
        f"--backlog keep, reroute or terminate. If it has a new name, declare it there: renamed_from={name!r}."
    )


def apply_backlog_decisions(connection: Connection, application: str) -> list[BacklogResult]:
    """Reroute or terminate the instances of the removed ports and locations of an application, as was decided."""
    return [
        _apply_decision(connection, service, decision)
        for service in read_removed_services(connection)
        if service.application == application and (decision := Backlog(service.backlog)) is not Backlog.KEEP
    ]


def _apply_decision(connection: Connection, service: Service, decision: Backlog) -> BacklogResult:
    query = InstanceQuery(services=[service.id])
    terminated = active = 0
    hosts: Mapping[str, int] = {}
    if decision is Backlog.TERMINATE:
        terminated = change_all(connection, "terminate", query, all_messages=True).changed
        active = sum(count_states(connection, query).values())
    elif service.kind != ChangeKind.LOCATION:
        # An instance of an orchestration that has started stays.
        hosts = reroute_deliveries(connection, query)
        left = replace(query, tasks=DELIVERIES, states=_REROUTABLE)
        active = sum(count_states(connection, left).values())
    else:
        # What a pipeline has to read first stays suspended.
        hosts = change_all(connection, "reroute", query).hosts
    if not active:
        finish_backlog(connection, service.id)
    count = terminated + sum(hosts.values())
    return BacklogResult(name=service.display_name, decision=decision, count=count, hosts=hosts, active=active)
