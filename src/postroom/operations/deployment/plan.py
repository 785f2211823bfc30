"""The plan of a deployment: a step per object, and the problems that prevent it."""

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


class ChangeKind(StrEnum):
    APPLICATION = "application"
    HOST = "host"
    PROPERTY = "property"
    RECEIVE_PORT = "receive port"
    LOCATION = "location"
    SEND_PORT = "send port"
    SEND_PORT_GROUP = "send port group"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One field that changes."""

    field: str
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class PlanStep:
    """What happens to one object. ``note`` is a remark for the user."""

    kind: ChangeKind
    name: str
    action: Action
    differences: tuple[Difference, ...] = ()
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The steps of applying an application. With problems none of them is executed."""

    application: str
    steps: tuple[PlanStep, ...]
    problems: tuple[Problem, ...] = ()
    hosts: tuple[str, ...] = ()
    """The hosts of the application, before and after. Their running processes have to take the changes."""

    @property
    def changes(self) -> tuple[PlanStep, ...]:
        """The steps that change something."""
        return tuple(step for step in self.steps if step.action is not Action.KEEP)

    def select(self, kind: ChangeKind, *actions: Action) -> Iterator[PlanStep]:
        """Yield the steps for one kind of object with one of these actions."""
        return (step for step in self.steps if step.kind is kind and step.action in actions)
