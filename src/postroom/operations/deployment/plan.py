"""The plan of a deployment: a step per object, and the problems that prevent it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from postroom.errors import DefinitionRefused, NotAllowed, Problem
from postroom.operations.orchestrations.replays import IncompatibleInstance


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
    ORCHESTRATION = "orchestration"
    LOOKUP = "lookup"


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
    notes: tuple[str, ...] = ()
    """Remarks about what is not part of the plan."""
    hosts: tuple[str, ...] = ()
    """The hosts of the application, before and after. Their running processes have to take the changes."""
    incompatible_instances: tuple[IncompatibleInstance, ...] = ()
    """Waiting instances of orchestrations whose journals do not fit the changed code. They will be suspended."""
    forbidden_hosts: tuple[str, ...] = ()
    """New hosts that the login may not create. Only the owner of the MessageBox may."""

    @property
    def changes(self) -> tuple[PlanStep, ...]:
        """The steps that change something."""
        return tuple(step for step in self.steps if step.action is not Action.KEEP)

    def to_removal(self) -> Plan:
        """Return the plan that removes the application too. This plan applies it without any objects."""
        removal = PlanStep(kind=ChangeKind.APPLICATION, name=self.application, action=Action.REMOVE)
        others = (step for step in self.steps if step.kind is not ChangeKind.APPLICATION)
        return replace(self, steps=(removal, *others))

    def check(self) -> None:
        """Raise DefinitionRefused with all problems if there are any, or NotAllowed if the login lacks a right."""
        hosts = ", ".join(map(repr, self.forbidden_hosts))
        not_allowed = f"The login may not create the host {hosts}."
        if self.problems:
            missing_right = [Problem(not_allowed)] if self.forbidden_hosts else []
            removes = any(self.select(ChangeKind.APPLICATION, Action.REMOVE))
            what = "The removal of the application" if removes else "The application"
            raise DefinitionRefused(f"{what} {self.application!r}", [*self.problems, *missing_right])
        if self.forbidden_hosts:
            raise NotAllowed(
                not_allowed,
                why="Only the owner of the MessageBox creates hosts, which have their own role and queues.",
                hint="Let the owner apply the application once. After that an administrator can change it.",
            )

    def select(self, kind: ChangeKind, *actions: Action) -> Iterator[PlanStep]:
        """Yield the steps for one kind of object with one of these actions."""
        return (step for step in self.steps if step.kind is kind and step.action in actions)
