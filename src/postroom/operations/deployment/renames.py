"""Renamed ports, locations, orchestrations and lookups: they keep their id, and with it their messages and their state.

A rename is done once. The stored definition shows that it was: it has the same ``renamed_from``. A new object also
takes over the id, and with it the messages, of an old name that was removed before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from postroom.application import (
    LookupDefinition,
    OrchestrationDefinition,
    ReceiveLocationDefinition,
    ReceivePortDefinition,
    SendPortDefinition,
)
from postroom.errors import Problem

Declared = (
    SendPortDefinition | ReceivePortDefinition | ReceiveLocationDefinition | OrchestrationDefinition | LookupDefinition
)


@dataclass(frozen=True, kw_only=True)
class Renames:
    """The renames of one kind of object that are still to be done."""

    old_names: Mapping[str, str] = field(default_factory=dict)
    """The old names, by new name."""
    removed_names: Mapping[str, str] = field(default_factory=dict)
    """The old names that were removed before, by the name of the new object that takes over their messages."""
    conflicts: tuple[Declared, ...] = ()
    """Objects that cannot be renamed, because both names are deployed."""

    def find_problems(self, what: str) -> Iterator[Problem]:
        """Yield a problem for each object that cannot be renamed."""
        for each in self.conflicts:
            yield each.position.problem(
                f"{what} {each.name!r} cannot be renamed from {each.renamed_from!r}: both are deployed. Remove "
                f"renamed_from; --backlog decides what becomes of the messages of {each.renamed_from!r}."
            )


NO_RENAMES = Renames()


def find_renames(
    declared: Mapping[str, Declared],
    old_names: Mapping[str, str],
    deployed: Mapping[str, Any],
    removed: Collection[str],
) -> Renames:
    """Return the renames of one kind of object, whose names are those in a plan. ``old_names`` are the declared old
    names, by new name, and ``removed`` are the names that the application has removed."""
    done = {(name, known.definition.get("renamed_from")) for name, known in deployed.items()}
    # A name that is declared or was removed under its own name has its own messages.
    taken_over = {
        name: old
        for name, old in old_names.items()
        if old in removed and not {old, name} & deployed.keys() and old not in declared and name not in removed
    }
    wanted = {
        name: old
        for name, old in old_names.items()
        if old in deployed and (name, declared[name].renamed_from) not in done
    }
    conflicts: list[Declared] = []
    while True:
        # A name that another object gives up is free: two ports can swap their names.
        given_up = set(wanted.values())
        taken = [name for name in wanted if name in deployed and name not in given_up]
        if not taken:
            return Renames(old_names=wanted, removed_names=taken_over, conflicts=tuple(conflicts))
        for name in taken:
            conflicts.append(declared[name])
            del wanted[name]
