"""List, enlist, start, stop and unenlist orchestrations (ORS-01 … 04).

An orchestration is enlisted only if each of its logical ports is bound, and started only if the send ports and groups
that they are bound to are enlisted.

Messages activate only the newest version of an orchestration, so a change of state is one of the newest version. Older
versions finish their instances in any state. Every change takes the routing lock exclusively.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from postroom.errors import NONE_APPLIED, find_named
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import Connection
from postroom.messagebox.orchestrations import (
    DeployedOrchestration,
    list_uses,
    read_orchestrations,
)
from postroom.operations.orchestrations.bindings import (
    PortBinding,
    check_bound,
    check_ports_enlisted,
    list_bindings,
)
from postroom.operations.orchestrations.enlistment import (
    enlist_orchestration,
    unenlist_orchestration,
)
from postroom.operations.ports.states import StateOperations
from postroom.operations.records import extend


@dataclass(frozen=True, kw_only=True)
class OrchestrationListing:
    """A version of an orchestration with the number of its instances and messages."""

    name: str
    version: int
    newest: bool
    state: ServiceState
    application: str
    host: str
    filter: str | None
    convoy: Sequence[str]
    ordered: bool
    correlations: Sequence[str]
    """The properties of each correlation."""
    priority: int
    file: str
    instances: int
    """Instances that have not ended."""
    waiting_instances: int
    """Those of them that wait for a message or a timer."""
    suspended_instances: int
    queued_messages: int
    """Messages in the work queue, for new and for existing instances."""
    suspended_messages: int
    """Messages that would activate an instance, and messages that an ended instance has not received."""
    problem: str | None
    """Why a host instance does not load the file, so that its instances wait."""
    service_id: uuid.UUID
    subscription_id: int | None


@dataclass(frozen=True, kw_only=True)
class OrchestrationDetails(OrchestrationListing):
    """The newest version of an orchestration."""

    older_versions: Sequence[int]
    bindings: Sequence[PortBinding]
    """What its logical ports are bound to."""


def list_orchestrations(connection: Connection, *, application: str | None = None) -> list[OrchestrationListing]:
    """Return every version of every orchestration, or those of one application, by name and version."""
    deployed = {one.service_id: one for one in read_orchestrations(connection)}
    return [
        OrchestrationListing(
            name=one.name,
            version=one.version,
            newest=one.is_newest,
            state=one.state,
            application=use.application,
            host=use.host,
            filter=one.filter,
            convoy=one.convoy,
            ordered=one.is_ordered,
            correlations=[" and ".join(keys) for keys in one.correlations],
            priority=one.priority,
            file=one.file,
            instances=use.instances,
            waiting_instances=use.waiting_instances,
            suspended_instances=use.suspended_instances,
            queued_messages=use.queued_messages,
            suspended_messages=use.suspended_messages,
            problem=use.problem,
            service_id=use.service_id,
            subscription_id=one.subscription_id,
        )
        for use in list_uses(connection, application=application)
        if (one := deployed.get(use.service_id)) is not None
    ]


def get_orchestration_details(connection: Connection, name: str) -> OrchestrationDetails:
    """Return the newest version of an orchestration. Raise NotFound if there is none with this name."""
    newest = _get_orchestration(connection, name)
    versions = [version for version in list_orchestrations(connection) if version.name == name]
    (found,) = (version for version in versions if version.service_id == newest.service_id)
    older = [version.version for version in versions if version is not found]
    return extend(found, OrchestrationDetails, older_versions=older, bindings=list_bindings(connection, newest))


def _get_orchestration(connection: Connection, name: str) -> DeployedOrchestration:
    """Return the newest version of the orchestration."""
    newest = {one.name: one for one in read_orchestrations(connection) if one.is_newest}
    return find_named(newest, name, "orchestration", none=NONE_APPLIED)


def _enlist(connection: Connection, one: DeployedOrchestration) -> DeployedOrchestration:
    check_bound(connection, one)
    return enlist_orchestration(connection, one)


_OPERATIONS = StateOperations(
    "Orchestration",
    "orchestration",
    _get_orchestration,
    get_id=lambda one: one.service_id,
    enlist=_enlist,
    unenlist=unenlist_orchestration,
    check_start=check_ports_enlisted,
)
enlist, start, stop, unenlist = _OPERATIONS.enlist, _OPERATIONS.start, _OPERATIONS.stop, _OPERATIONS.unenlist
