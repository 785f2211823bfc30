"""Whether the waiting instances of changed orchestrations can continue with the code that is to be applied."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

from postroom.application import OrchestrationDefinition
from postroom.errors import Problem, format_count, sort_problems
from postroom.messagebox.connection import Connection
from postroom.messagebox.orchestrations import format_name
from postroom.operations.deployment.artifacts import Comparison
from postroom.operations.deployment.orchestrations import ORCHESTRATIONS
from postroom.operations.deployment.plan import Action, Plan
from postroom.operations.orchestrations.replays import (
    MAX_SECONDS,
    IncompatibleInstance,
    ReplayedJournals,
    replay_waiting_instances,
)

#: How many instances a text names. ``-o json`` has all of them.
_MAX_NAMED = 10

_REFUSED = "would be suspended. Declare it as a new version next to the old one, or use --allow-incompatible."
_ALLOWED = "will be suspended with JOURNAL at the next event."


@dataclass(frozen=True, kw_only=True)
class CheckedJournals:
    """What the replays of all changed orchestrations have found."""

    incompatible: tuple[IncompatibleInstance, ...] = ()
    problems: tuple[Problem, ...] = ()
    """A problem for each orchestration with such instances."""
    allowed: tuple[str, ...] = ()
    """What becomes of these instances if they are allowed, for each orchestration."""
    notes: tuple[str, ...] = ()

    def add_to(self, plan: Plan, *, allow_incompatible: bool) -> Plan:
        """Return the plan with these results. Incompatible instances are problems, unless they are allowed."""
        allowed = self.allowed if allow_incompatible else ()
        refused = () if allow_incompatible else self.problems
        return replace(
            plan,
            problems=sort_problems([*plan.problems, *refused]),
            notes=(*plan.notes, *self.notes, *allowed),
            incompatible_instances=self.incompatible,
        )


def check_waiting_journals(connection: Connection, compared: Comparison, plan: Plan) -> CheckedJournals:
    """Replay the journals of the waiting instances of all orchestrations whose code a plan changes."""
    deadline = time.monotonic() + MAX_SECONDS
    incompatible: list[IncompatibleInstance] = []
    problems: list[Problem] = []
    allowed: list[str] = []
    notes: list[str] = []
    for declared, service_id in _find_changed(compared, plan):
        assert declared.loaded.orchestration is not None
        result = replay_waiting_instances(connection, service_id, declared.loaded.orchestration, deadline=deadline)
        notes += _describe(declared, result)
        incompatible += result.incompatible
        if result.incompatible:
            problems.append(
                declared.position.problem(f"orchestration {_describe_incompatible(declared, result, _REFUSED)}")
            )
            allowed.append(f"Orchestration {_describe_incompatible(declared, result, _ALLOWED)}")
    return CheckedJournals(
        incompatible=tuple(incompatible), problems=tuple(problems), allowed=tuple(allowed), notes=tuple(notes)
    )


def _find_changed(compared: Comparison, plan: Plan) -> Iterator[tuple[OrchestrationDefinition, uuid.UUID]]:
    """Yield the orchestrations whose code changes, or which are declared again, with their ids."""
    declared, deployed = ORCHESTRATIONS.get_declared(compared.definition), compared.deployed.get(ORCHESTRATIONS)
    for step in plan.select(ORCHESTRATIONS.kind, Action.CHANGE, Action.CREATE):
        one = declared[step.name]
        if one.loaded.orchestration is None:
            continue
        if step.action is Action.CREATE:
            removed = compared.deployed.find_removed(ORCHESTRATIONS.kind, step.name)
            if removed is not None:
                yield one, removed
        elif any(difference.field == "code" for difference in step.differences):
            yield one, deployed[step.name].service_id


def _describe(declared: OrchestrationDefinition, result: ReplayedJournals) -> Iterator[str]:
    """Yield what the replays of one orchestration have found, except for the instances that do not fit."""
    name = f"Orchestration {format_name(declared.name, declared.version)!r}"
    if result.instances:
        fitting = result.replayed - len(result.incompatible) - len(result.broken)
        sample = "" if result.replayed == result.instances else ", a sample"
        yield (
            f"{name}: {result.replayed:,} of {result.instances:,} journals of waiting instances were replayed{sample}. "
            f"{fitting:,} fit the changed code."
        )
    for instance_id, why in result.broken[:_MAX_NAMED]:
        yield f"{name}: the journal of instance {instance_id} cannot be replayed. {why}"
    if len(result.broken) > _MAX_NAMED:
        yield f"{name}: {len(result.broken) - _MAX_NAMED:,} more journals cannot be replayed."


def _describe_incompatible(declared: OrchestrationDefinition, result: ReplayedJournals, consequence: str) -> str:
    found = result.incompatible
    lines = [f"  {one.instance_id}, turn {one.turn}: {one.difference}" for one in found[:_MAX_NAMED]]
    if len(found) > _MAX_NAMED:
        lines.append(f"  and {len(found) - _MAX_NAMED:,} more; -o json lists all")
    name, count = format_name(declared.name, declared.version), format_count(len(found), "waiting instance")
    return f"{name!r}: {count} cannot continue with the changed code, and {consequence}\n" + "\n".join(lines)
