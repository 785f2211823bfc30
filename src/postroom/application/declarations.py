"""The declarations of a user as they were written, each with its file and line.

Nothing is rejected here, so that all problems of an application can be reported together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from postroom.adapters import ReceiveDefinition
from postroom.application.definition import DEFAULT_HOST
from postroom.application.schedule import Schedule
from postroom.application.source_position import SourcePosition, get_caller_position
from postroom.errors import Problem
from postroom.pipelines import ReceivePipeline
from postroom.properties import Property

_Declared = TypeVar("_Declared", bound="Declared")


@dataclass(frozen=True, kw_only=True, eq=False)
class Declared:
    """A host, a port, a location, a group, an orchestration or a lookup as a user has written it: the arguments by
    name, which are attributes too. Nothing is checked yet, so each can be any object."""

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


def declare(kind: type[_Declared], arguments: Mapping[str, Any]) -> _Declared:
    """Return what a user declares by calling a method. ``arguments`` are the local variables of the method."""
    settings = {argument: given for argument, given in arguments.items() if argument not in ("self", "name")}
    return kind(name=arguments["name"], position=get_caller_position(), settings=settings)


@dataclass(frozen=True, kw_only=True, eq=False)
class ReceivePort(Declared):
    """A receive port while it is being declared. Calls of ``location`` can be chained."""

    locations: list[Declared] = field(default_factory=list)

    def location(
        self,
        name: str,
        adapter: ReceiveDefinition,
        *,
        pipeline: ReceivePipeline | None = None,
        host: str = DEFAULT_HOST,
        enabled: bool = True,
        schedule: Schedule | None = None,
        renamed_from: str | None = None,
    ) -> ReceivePort:
        """Add a receive location. Without a pipeline its messages pass through unread. With a ``schedule`` it receives
        messages only at these times. ``renamed_from`` is the old name of the location, which keeps its messages."""
        self.locations.append(declare(Declared, locals()))
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
    orchestrations: list[Declared] = field(default_factory=list)
    lookups: list[Declared] = field(default_factory=list)
