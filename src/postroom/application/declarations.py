"""The declarations of a user as they were written, each with its file and line.

Nothing is rejected here, so that all problems of an application can be reported together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from postroom.adapters import AdapterDefinition
from postroom.application.definition import DEFAULT_HOST, OrchestrationState
from postroom.application.schedule import Schedule
from postroom.application.source_position import SourcePosition, get_caller_position
from postroom.errors import Problem
from postroom.orchestrations.correlation import Correlation
from postroom.orchestrations.definition import Orchestration
from postroom.pipelines import ReceivePipeline
from postroom.properties import Property


@dataclass(frozen=True, kw_only=True, eq=False)
class Declared:
    """A host, a port, a location or a group as a user has written it: the arguments by name, which are attributes
    too. Nothing is checked yet, so each can be any object."""

    name: str
    position: SourcePosition
    settings: Mapping[str, Any]
    """The arguments by the names of the fields of the definition."""

    def __getattr__(self, name: str) -> Any:
        if name == "settings" or name not in self.settings:
            raise AttributeError(name)
        return self.settings[name]


@dataclass(frozen=True, kw_only=True)
class DeclaredProperty:
    property: Property
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


@dataclass(frozen=True, kw_only=True, eq=False)
class ReceivePort(Declared):
    """A receive port while it is being declared. Calls of ``location`` can be chained."""

    locations: list[Declared] = field(default_factory=list)

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
            Declared(
                name=name,
                position=get_caller_position(),
                settings={
                    "adapter": adapter,
                    "pipeline": pipeline,
                    "host": host,
                    "enabled": enabled,
                    "schedule": schedule,
                    "renamed_from": renamed_from,
                },
            )
        )
        return self


@dataclass(kw_only=True, eq=False, repr=False)
class Declarations:
    """Everything that an application declares."""

    name: str
    position: SourcePosition
    hosts: list[Declared] = field(default_factory=list)
    properties: list[DeclaredProperty] = field(default_factory=list)
    schema_problems: list[Problem] = field(default_factory=list)
    receive_ports: list[ReceivePort] = field(default_factory=list)
    send_ports: list[Declared] = field(default_factory=list)
    send_port_groups: list[Declared] = field(default_factory=list)
    orchestrations: list[DeclaredOrchestration] = field(default_factory=list)
