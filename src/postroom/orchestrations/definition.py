"""A declared orchestration."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from postroom.errors import StateError
from postroom.filters.evaluate import matches
from postroom.filters.expression import Filter
from postroom.maps import Map
from postroom.message import Message
from postroom.orchestrations.components import AnyPipeline, Components
from postroom.properties import Property

#: What an author writes: a coroutine function that takes the message that activates the instance. One with several
#: activating receives has no parameter.
OrchestrationFunction = Callable[[Message], Coroutine[Any, Any, None]] | Callable[[], Coroutine[Any, Any, None]]


class SendPort(Protocol):
    """A declared send port, or a send port group: what ``app.send_port`` and ``app.send_port_group`` return."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class JournalLimits:
    """How long the journal of an instance may become. A replay takes longer with each event."""

    events: int = 50_000
    size: int = 50_000_000
    """The approximate number of characters."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Orchestration:
    """A coroutine function and what activates it: messages, or other orchestrations if ``activate`` is None. Calling it
    inside another orchestration runs it as a part of that instance, and passes its other parameters."""

    name: str
    version: int
    function: Callable[..., Coroutine[Any, Any, None]]
    activate: Filter | None
    activations: tuple[Filter, ...] = ()
    """The filters of its activating receives, if it has several: its function has no parameter, and receives each
    message, also the one that activates it. ``activate`` joins them."""
    convoy: tuple[Property, ...] = ()
    """The properties whose values the messages of one instance share. Empty: each message activates an instance."""
    correlations: tuple[tuple[Property, ...], ...] = ()
    """The properties of each correlation that its receives follow."""
    journal_limits: JournalLimits = JournalLimits()
    maps: Sequence[Map] = ()
    """The maps that its code applies."""
    pipelines: Sequence[AnyPipeline] = ()
    """The pipelines that its code runs."""
    folder: Path = Path()
    """The folder of the application."""
    deployed: Components | None = None
    """The maps and pipelines as they were applied. None: they are those of the folder."""
    code: str | None = None
    """A digest of the code that the function reaches, with its lines, in a host. None if it is not known."""
    send_ports: Sequence[Any] = ()
    """The send ports that its application declares, for tests. More can be declared after it."""
    bindings: Mapping[str, SendPort | str | None] = field(default_factory=dict)
    """What its application binds logical ports to, by their names. None: direct."""
    renamed_from: str | None = None
    """Its old name. The journals of its callers may have it."""

    def has_code_of(self, other: Orchestration) -> bool:
        """Return True if both run the same code with the same maps and pipelines."""
        is_same = self.function is other.function or (self.code is not None and self.code == other.code)
        return is_same and self.deployed == other.deployed

    @cached_property
    def components(self) -> Components:
        """The maps and pipelines, ready to run. Raise DefinitionError if a file is missing."""
        return self.deployed or Components.read_files(self.maps, self.pipelines, self.folder)

    def find_activation(self, message: Message) -> Filter | None:
        """Return the filter of the first of several activating receives that takes a message."""
        return next((filter for filter in self.activations if matches(filter, message.context.promoted)), None)

    def run(self, message: Message) -> Coroutine[Any, Any, None]:
        """Return the coroutine of an instance that a message activates."""
        return self.function() if self.activations else self.function(message)

    def __call__(self, message: Message, *arguments: Any, **named: Any) -> Coroutine[Any, Any, None]:
        if self.activations:
            raise StateError(
                f"The orchestration {self.name!r} cannot be called.",
                why="It has no parameter, and receives the message that activates it.",
                hint="Publish the message, or call an orchestration with a parameter.",
            )
        function: Callable[..., Coroutine[Any, Any, None]] = self.function
        return function(message, *arguments, **named)


def get_port_name(port: SendPort | str) -> str:
    """Return the name of a send port or a group that was declared or named."""
    return port if isinstance(port, str) else port.name


def describe_wrong_direct_call(logical_port: str, call: str) -> str | None:
    """Return why an orchestration cannot ``send``, ``deliver`` or ``request`` through a logical port that is bound
    directly, or None if it can."""
    if call == "send":
        return None
    return (
        f"the logical port {logical_port!r} is bound directly, so that nobody is certain to answer a {call}. Use send, "
        "or bind it to a send port."
    )


def describe_wrong_call(port: str, call: str, *, two_way: bool) -> str | None:
    """Return why an orchestration cannot ``send``, ``deliver`` or ``request`` through a send port, or None if it
    can."""
    if call == "request" and not two_way:
        return f"the send port {port!r} is one-way, so that a request gets no response. Use send or deliver."
    if call == "deliver" and two_way:
        return f"the send port {port!r} is two-way, so that nobody can wait for its delivery. Use request."
    return None
