"""List, enlist, start, stop and unenlist orchestrations (ORS-01 … 04).

Messages activate only the newest version of an orchestration, so a change of state is one of the newest version. Older
versions finish their instances in any state. Every change takes the routing lock exclusively.
"""

from __future__ import annotations

from dataclasses import dataclass

from postroom.errors import NotFound, nearest
from postroom.messagebox.connection import Connection
from postroom.messagebox.orchestrations import DeployedOrchestration, OrchestrationState, read_orchestrations
from postroom.messagebox.statements import statement
from postroom.operations.orchestrations import (
    enlist_orchestration,
    start_orchestration,
    stop_orchestration,
    unenlist_orchestration,
)
from postroom.operations.ports.enlistment import Resumed
from postroom.operations.ports.states import StateChange, Step, change_state


@dataclass(frozen=True, kw_only=True)
class OrchestrationListing:
    """A version of an orchestration with the number of its instances and messages."""

    orchestration: DeployedOrchestration
    application: str
    host: str
    instances: int
    """Instances that have not ended."""
    suspended_instances: int
    waiting: int
    """Messages in the work queue, for new and for existing instances."""
    suspended_messages: int
    """Messages that would activate an instance, and messages that an ended instance has not received."""


def list_orchestrations(connection: Connection, *, application: str | None = None) -> list[OrchestrationListing]:
    """Return every version of every orchestration, or those of one application, by name and version."""
    deployed = {one.service_id: one for one in read_orchestrations(connection)}
    rows = connection.execute(statement("queries/list_orchestrations"), {"application": application})
    return [
        OrchestrationListing(
            orchestration=deployed[service_id],
            application=owner,
            host=host,
            instances=instances,
            suspended_instances=suspended_instances,
            waiting=waiting,
            suspended_messages=suspended_messages,
        )
        for service_id, owner, host, instances, suspended_instances, waiting, suspended_messages in rows
        if service_id in deployed
    ]


def get_orchestration(connection: Connection, name: str) -> DeployedOrchestration:
    """Return the newest version of the orchestration. Raise NotFound, which suggests names, if there is none."""
    newest = {one.name: one for one in read_orchestrations(connection) if one.is_newest}
    if name in newest:
        return newest[name]
    raise NotFound(
        f"There is no orchestration {name!r}.",
        hint=nearest(name, newest, "The orchestrations are", none="none; run postroom apply first"),
    )


def enlist(connection: Connection, name: str) -> StateChange:
    """Change a bound orchestration to stopped: messages that would activate it are suspended."""
    return _change(connection, name, "enlist", lambda c, one: (enlist_orchestration(c, one), Resumed()))


def start(connection: Connection, name: str) -> StateChange:
    """Start the orchestration. Messages that were suspended because it was stopped activate instances, in order."""
    return _change(connection, name, "start", _start)


def stop(connection: Connection, name: str) -> StateChange:
    """Stop the orchestration: messages that would activate it are suspended. Its instances go on (ORS-03)."""
    return _change(connection, name, "stop", lambda c, one: (stop_orchestration(c, one), Resumed()))


def unenlist(connection: Connection, name: str) -> StateChange:
    """Remove the activation subscription. Instances go on."""
    return _change(connection, name, "unenlist", lambda c, one: (unenlist_orchestration(c, one), Resumed()))


def _change(connection: Connection, name: str, operation: str, step: Step[DeployedOrchestration]) -> StateChange:
    return change_state(connection, "Orchestration", operation, name, get_orchestration, step)


def _start(connection: Connection, one: DeployedOrchestration) -> tuple[DeployedOrchestration, Resumed]:
    is_bound = one.state is OrchestrationState.BOUND
    return start_orchestration(connection, enlist_orchestration(connection, one) if is_bound else one)
