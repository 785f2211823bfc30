"""Bindings: what the logical ports of orchestrations are bound to, by operators, by the application or by default.

A binding belongs to the name of an orchestration, so it applies to all of its versions."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement

_Target = TypeVar("_Target", str, uuid.UUID)

#: The ids of the bound send ports and groups, by orchestration and logical port. None: direct.
BoundIds = Mapping[tuple[str, str], uuid.UUID | None]


@dataclass(frozen=True, kw_only=True)
class BindingTarget:
    """A send port or a send port group that a logical port can be bound to."""

    name: str
    id: uuid.UUID
    is_group: bool
    two_way: bool
    state: ServiceState

    @property
    def kind(self) -> str:
        return "send port group" if self.is_group else "send port"


class BoundBy(StrEnum):
    """Who has decided what a logical port is bound to. By default it is the port with the same name."""

    DEFAULT = "default"
    APPLICATION = "application"
    OPERATOR = "operator"


def find_target(
    orchestration: str,
    logical_port: str,
    declared: Mapping[str, str | None],
    bound: Mapping[tuple[str, str], _Target | None],
) -> tuple[_Target | str | None, BoundBy]:
    """Return what a logical port is bound to, or None for direct, and who has decided it. ``declared`` are the names in
    the bindings of the application, ``bound`` are the names or ids that operators have chosen."""
    if (orchestration, logical_port) in bound:
        return bound[orchestration, logical_port], BoundBy.OPERATOR
    if logical_port in declared:
        return declared[logical_port], BoundBy.APPLICATION
    return logical_port, BoundBy.DEFAULT


def read_bindings(connection: Connection) -> BoundIds:
    """Return the bindings that operators have made."""
    rows = connection.execute(statement("queries/read_bindings"))
    return {(orchestration, port): target_id for orchestration, port, target_id in rows}


def read_binding_targets(connection: Connection) -> dict[str, BindingTarget]:
    """Return all send ports and send port groups, by name."""
    rows = connection.execute(statement("queries/read_binding_targets"))
    return {
        name: BindingTarget(name=name, id=id, is_group=is_group, two_way=two_way, state=ServiceState(state))
        for name, id, is_group, two_way, state in rows
    }


def bind_logical_port(connection: Connection, orchestration: str, port: str, target: BindingTarget | None) -> None:
    """Bind a logical port, for an operator. None: direct. The function records it in the audit."""
    send_port_id = None if target is None or target.is_group else target.id
    group_id = target.id if target is not None and target.is_group else None
    arguments = (orchestration, port, send_port_id, group_id)
    connection.execute("SELECT bind_logical_port(%s, %s, true, %s, %s)", arguments)


def unbind_logical_port(connection: Connection, orchestration: str, port: str) -> None:
    """Remove the binding of a logical port, for an operator. The function records it in the audit."""
    connection.execute("SELECT bind_logical_port(%s, %s, false, NULL, NULL)", (orchestration, port))


def rename_bindings(connection: Connection, new_names: Mapping[str, str]) -> None:
    """Move bindings to the new names of orchestrations, by old name. They get a temporary name first, because two of
    them may swap their names."""
    rename = "UPDATE bindings SET orchestration = %s WHERE orchestration = %s"
    for old in new_names:
        connection.execute(rename, (f"renamed from {old}", old))
    for old, new in new_names.items():
        connection.execute(rename, (new, f"renamed from {old}"))


def delete_bindings(connection: Connection, orchestration: str, *, besides: Collection[str]) -> None:
    """Delete the bindings of an orchestration, except those of some logical ports, as a part of a deployment."""
    connection.execute(statement("queries/delete_bindings"), (orchestration, sorted(besides)))
