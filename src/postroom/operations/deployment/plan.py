"""What applying an application would do: one line per thing, and what stands in its way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from postroom.errors import Problem


class Action(StrEnum):
    CREATE = "create"
    CHANGE = "change"
    REMOVE = "remove"
    KEEP = "keep"


class Kind(StrEnum):
    APPLICATION = "application"
    HOST = "host"
    PROPERTY = "property"
    RECEIVE_PORT = "receive port"
    LOCATION = "location"
    SEND_PORT = "send port"
    SEND_PORT_GROUP = "send port group"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One field that is to change."""

    field: str
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class Step:
    """What happens to one thing. ``note`` is for people."""

    kind: Kind
    name: str
    action: Action
    differences: tuple[Difference, ...] = ()
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that applying an application does, or did. With problems nothing of it can be done."""

    application: str
    steps: tuple[Step, ...]
    problems: tuple[Problem, ...] = ()

    @property
    def changes(self) -> tuple[Step, ...]:
        """The steps that are not just to keep what is there."""
        return tuple(step for step in self.steps if step.action is not Action.KEEP)

    def of(self, kind: Kind, *actions: Action) -> Iterator[Step]:
        """The steps for one kind of thing, with one of these actions."""
        return (step for step in self.steps if step.kind is kind and step.action in actions)
