"""Renamed send ports and receive locations: they keep their id, and with it their messages and their state.

A rename is done once. The stored definition shows that it was: it has the same ``renamed_from``. A new port or location
also takes over the id, and with it the messages, of an old name that was removed before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from postroom.application import ReceiveLocationDefinition, SendPortDefinition
from postroom.errors import Problem
from postroom.ports.endpoint import Endpoint

Declared = SendPortDefinition | ReceiveLocationDefinition


@dataclass(frozen=True, kw_only=True)
class Renames:
    """The renames of one kind of object that are still to be done."""

    old_names: Mapping[str, str] = field(default_factory=dict)
    """The old names, by new name."""
    removed_names: Mapping[str, str] = field(default_factory=dict)
    """The old names that were removed before, by the name of the new object that takes over their messages."""
    conflicts: tuple[Declared, ...] = ()
    """Objects that cannot be renamed, because both names are deployed."""

    def apply(self, deployed: Mapping[str, Endpoint]) -> dict[str, Endpoint]:
        """Return the deployed objects under their new names."""
        new_names = {old: new for new, old in self.old_names.items()}
        renamed = (replace(each, name=new_names.get(name, name)) for name, each in deployed.items())
        return {each.name: each for each in renamed}

    def find_problems(self, what: str) -> Iterator[Problem]:
        """Yield a problem for each object that cannot be renamed."""
        for each in self.conflicts:
            yield each.position.problem(
                f"{what} {each.name!r} cannot be renamed from {each.renamed_from!r}: both are deployed. Remove "
                f"renamed_from; --backlog decides what becomes of the messages of {each.renamed_from!r}."
            )


NO_RENAMES = Renames()


def find_renames(declared: Sequence[Declared], deployed: Mapping[str, Endpoint], removed: Collection[str]) -> Renames:
    """Return the renames of one kind of object. ``removed`` are the names that the application has removed."""
    done = {(name, known.definition.get("renamed_from")) for name, known in deployed.items()}
    names = {each.name for each in declared}
    # A name that is declared or was removed under its own name has its own messages.
    taken_over = {
        each.name: each.renamed_from
        for each in declared
        if each.renamed_from is not None
        and each.renamed_from in removed
        and not {each.renamed_from, each.name} & deployed.keys()
        and each.renamed_from not in names
        and each.name not in removed
    }
    wanted = {
        each.name: each
        for each in declared
        if each.renamed_from in deployed and (each.name, each.renamed_from) not in done
    }
    conflicts: list[Declared] = []
    while True:
        # A name that another object gives up is free: two ports can swap their names.
        given_up = {each.renamed_from for each in wanted.values()}
        taken = [each for each in wanted.values() if each.name in deployed and each.name not in given_up]
        if not taken:
            return Renames(
                old_names={name: each.renamed_from for name, each in wanted.items() if each.renamed_from is not None},
                removed_names=taken_over,
                conflicts=tuple(conflicts),
            )
        conflicts += taken
        for each in taken:
            del wanted[each.name]
