"""The declarations of a user as they were written, each with its file and line.

Nothing is rejected here, so that all problems of an application can be reported together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from postroom.adapters import AdapterDefinition
from postroom.application.backup_transport import BackupTransport
from postroom.application.circuit_breaker import CircuitBreaker
from postroom.application.definition import DEFAULT_HOST, Authentication, OrchestrationState, SendPortState
from postroom.application.handler import Handler
from postroom.application.retry import Retry
from postroom.application.schedule import Schedule
from postroom.application.source_position import SourcePosition, get_caller_position
from postroom.application.throttling import Throttling
from postroom.errors import Problem
from postroom.filters.expression import Filter
from postroom.maps import Map
from postroom.orchestrations.correlation import Correlation
from postroom.orchestrations.definition import Orchestration
from postroom.pipelines import ReceivePipeline, Send
from postroom.properties import Property


@dataclass(frozen=True, kw_only=True)
class DeclaredHost:
    name: str
    properties: Mapping[Property, object] | None
    trusted: bool | None
    isolated: bool | None
    handlers: Sequence[Handler] | None
    throttling: Throttling | None
    position: SourcePosition


@dataclass(frozen=True, kw_only=True)
class DeclaredProperty:
    property: Property
    position: SourcePosition


@dataclass(frozen=True, kw_only=True)
class DeclaredLocation:
    name: str
    adapter: AdapterDefinition
    pipeline: ReceivePipeline | None
    host: str
    enabled: bool
    schedule: Schedule | None
    renamed_from: str | None
    position: SourcePosition


@dataclass(frozen=True, kw_only=True)
class DeclaredSendPort:
    name: str
    adapter: AdapterDefinition
    filter: Filter | str | None
    retry: Retry
    priority: int
    host: str
    state: SendPortState
    route_failures: bool
    description: str
    maps: Sequence[Map]
    pipeline: Send | None
    service_window: Schedule | None
    backup: BackupTransport | None
    circuit_breaker: CircuitBreaker | None
    expire_after: timedelta | float | None
    ordered: bool
    stop_on_failure: bool
    two_way: bool = False
    receive_pipeline: ReceivePipeline | None = None
    response_maps: Sequence[Map] = ()
    renamed_from: str | None
    position: SourcePosition


@dataclass(frozen=True, kw_only=True)
class DeclaredSendPortGroup:
    name: str
    members: tuple[DeclaredSendPort | str, ...]
    filter: Filter | str | None
    state: SendPortState
    description: str
    position: SourcePosition


@dataclass(frozen=True, kw_only=True)
class DeclaredOrchestration:
    orchestration: Orchestration
    correlations: tuple[Correlation, ...]
    ordered: bool
    host: str
    priority: int
    state: OrchestrationState
    position: SourcePosition

    @property
    def name(self) -> str:
        return self.orchestration.name


@dataclass(kw_only=True)
class ReceivePort:
    """A receive port while it is being declared. Calls of ``location`` can be chained."""

    name: str
    position: SourcePosition
    route_failures: bool = False
    authentication: Authentication = "none"
    maps: Sequence[Map] = ()
    two_way: bool = False
    send_pipeline: Send | None = None
    response_maps: Sequence[Map] = ()
    locations: list[DeclaredLocation] = field(default_factory=list)

    def location(
        self,
        name: str,
        adapter: AdapterDefinition,
        *,
        pipeline: ReceivePipeline | None = None,
        host: str = DEFAULT_HOST,
        enabled: bool = True,
        schedule: Schedule | None = None,
        renamed_from: str | None = None,
    ) -> ReceivePort:
        """Add a receive location. Without a pipeline its messages pass through unread. With a ``schedule`` it receives
        messages only at these times. ``renamed_from`` is the old name of the location, which keeps its messages."""
        self.locations.append(
            DeclaredLocation(
                name=name,
                adapter=adapter,
                pipeline=pipeline,
                host=host,
                enabled=enabled,
                schedule=schedule,
                renamed_from=renamed_from,
                position=get_caller_position(),
            )
        )
        return self


@dataclass(kw_only=True, eq=False, repr=False)
class Declarations:
    """Everything that an application declares."""

    name: str
    position: SourcePosition
    hosts: list[DeclaredHost] = field(default_factory=list)
    properties: list[DeclaredProperty] = field(default_factory=list)
    schema_problems: list[Problem] = field(default_factory=list)
    receive_ports: list[ReceivePort] = field(default_factory=list)
    send_ports: list[DeclaredSendPort] = field(default_factory=list)
    send_port_groups: list[DeclaredSendPortGroup] = field(default_factory=list)
    orchestrations: list[DeclaredOrchestration] = field(default_factory=list)
