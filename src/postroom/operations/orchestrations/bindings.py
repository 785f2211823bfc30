"""What the logical ports of orchestrations are bound to, and how operators change it (ORC-13).

The code of an orchestration names a logical port: ``send(..., to="Shipping")``. It is bound to what an operator has
bound it to, otherwise to what the application declares, otherwise to the send port or send port group with the same
name. Running hosts use a new binding from the next message on.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from postroom.errors import NONE_APPLIED, NotFound, StateError, find_named, suggest_names
from postroom.messagebox.bindings import (
    BindingTarget,
    BoundBy,
    bind_logical_port,
    find_target,
    read_binding_targets,
    read_bindings,
    unbind_logical_port,
)
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import Connection, operator_transaction
from postroom.messagebox.coordination.running_processes import lock_deployment
from postroom.messagebox.orchestrations import DeployedOrchestration, read_orchestrations
from postroom.orchestrations.definition import describe_wrong_call, describe_wrong_direct_call

#: The names of the send ports and groups that operators have bound logical ports to, by orchestration and logical port.
#: None: direct.
BoundNames = Mapping[tuple[str, str], str | None]


@dataclass(frozen=True, kw_only=True)
class PortBinding:
    """What a logical port of an orchestration is bound to. ``target`` is the name of a send port or a group, or
    ``direct``: published for whoever subscribes. ``kind`` and ``state`` are None if there is no such port, so that the
    orchestration is not bound."""

    logical_port: str
    calls: Sequence[str]
    target: str
    kind: str | None
    state: ServiceState | None
    bound_by: BoundBy

    @property
    def is_bound(self) -> bool:
        return self.kind is not None


@dataclass(frozen=True, kw_only=True)
class BindingChange:
    """A changed binding of a logical port. ``before`` and ``after`` are names of targets."""

    orchestration: str
    logical_port: str
    before: str
    after: str


def name_target(target: str | None) -> str:
    """Return the target of a binding as it is shown."""
    return "direct" if target is None else target


def format_bind_command(orchestration: str, logical_port: str, target: str = "TARGET") -> str:
    """Return the command that binds a logical port."""
    return shlex.join(["postroom", "orchestration", "bind", orchestration, logical_port, target])


def describe_wrong_binding(logical_port: str, call: str, target: str | None, *, two_way: bool | None) -> str | None:
    """Return why an orchestration cannot send, deliver or request through what a logical port is bound to, or None if
    it can. ``two_way`` is None for a group."""
    if target is None:
        return describe_wrong_direct_call(logical_port, call)
    return None if two_way is None else describe_wrong_call(target, call, two_way=two_way)


def read_bound_names(connection: Connection, targets: Mapping[str, BindingTarget]) -> dict[tuple[str, str], str | None]:
    """Return what operators have bound logical ports to, by the names of ``targets``."""
    names = {target.id: target.name for target in targets.values()}
    return {key: None if id is None else names[id] for key, id in read_bindings(connection).items()}


def list_bindings(connection: Connection, one: DeployedOrchestration) -> list[PortBinding]:
    """Return the binding of each logical port of an orchestration, by name."""
    targets = read_binding_targets(connection)
    bound, declared = read_bound_names(connection, targets), one.declared_bindings
    return [
        _describe(logical_port, calls, *find_target(one.name, logical_port, declared, bound), targets)
        for logical_port, calls in one.logical_ports.items()
    ]


def _describe(
    logical_port: str,
    calls: Sequence[str],
    name: str | None,
    bound_by: BoundBy,
    targets: Mapping[str, BindingTarget],
) -> PortBinding:
    target = None if name is None else targets.get(name)
    return PortBinding(
        logical_port=logical_port,
        calls=calls,
        target=name_target(name),
        kind="direct" if name is None else None if target is None else target.kind,
        state=None if target is None else target.state,
        bound_by=bound_by,
    )


def check_bound(connection: Connection, one: DeployedOrchestration) -> None:
    """Raise StateError if an orchestration has a logical port that is not bound, so that it cannot be enlisted
    (ORS-01)."""
    unbound = [binding for binding in list_bindings(connection, one) if not binding.is_bound]
    if unbound:
        names = ", ".join(repr(binding.logical_port) for binding in unbound)
        plural = "s" if len(unbound) > 1 else ""
        raise StateError(
            f"Orchestration {one.name!r} is not bound: there is no send port for its logical port{plural} {names}.",
            hint=f"Declare a port with this name, or bind it: {format_bind_command(one.name, unbound[0].logical_port)}",
        )


def check_ports_enlisted(connection: Connection, one: DeployedOrchestration) -> None:
    """Raise StateError if a send port or group that an orchestration is bound to is not enlisted, so that it cannot be
    started (ORS-02)."""
    for binding in list_bindings(connection, one):
        if binding.state is ServiceState.BOUND:
            noun = "group" if binding.kind == "send port group" else "port"
            raise StateError(
                f"Orchestration {one.name!r} cannot start: the {binding.kind} {binding.target!r}, to which its logical "
                f"port {binding.logical_port!r} is bound, is not enlisted.",
                hint=f"Start it first: postroom {noun} start {shlex.quote(binding.target)}",
            )


def bind(connection: Connection, orchestration: str, logical_port: str, target: str | None) -> BindingChange:
    """Bind a logical port, in all versions of the orchestration, to a send port or a send port group, or with None
    directly. Raise NotFound for an unknown name, and StateError if the target cannot do what the code asks of it."""

    def change(connection: Connection) -> None:
        targets = read_binding_targets(connection)
        if target is not None and target not in targets:
            raise NotFound(
                f"There is no send port or send port group {target!r}.",
                hint=suggest_names(target, targets, "There are", none="none; declare one, and run postroom apply"),
            )
        bind_logical_port(connection, orchestration, logical_port, None if target is None else targets[target])

    return _change(connection, orchestration, logical_port, change)


def unbind(connection: Connection, orchestration: str, logical_port: str) -> BindingChange:
    """Bind a logical port again as its application declares. Raise StateError if no operator has bound it, or if an
    enlisted orchestration would not be bound any more."""

    def change(connection: Connection) -> None:
        if (orchestration, logical_port) not in read_bindings(connection):
            raise StateError(
                f"No operator has bound the logical port {logical_port!r} of orchestration {orchestration!r}.",
                hint="There is nothing to do.",
            )
        unbind_logical_port(connection, orchestration, logical_port)

    return _change(connection, orchestration, logical_port, change)


def _change(
    connection: Connection, orchestration: str, logical_port: str, change: Callable[[Connection], None]
) -> BindingChange:
    """Change a binding, and check it then: an error rolls the change back."""

    def work(connection: Connection) -> BindingChange:
        # Now: the ports and the code must not change between the check and the commit.
        lock_deployment(connection)
        versions = _find_versions(connection, orchestration, logical_port)
        before = [_get_binding(connection, one, logical_port) for one in versions]
        change(connection)
        after = [_get_binding(connection, one, logical_port) for one in versions]
        for one in versions:
            _check_calls(connection, one, logical_port)
            if one.state is not ServiceState.BOUND or not one.is_newest:
                check_bound(connection, one)
        return BindingChange(
            orchestration=orchestration, logical_port=logical_port, before=before[-1].target, after=after[-1].target
        )

    return operator_transaction(connection, work)


def _find_versions(connection: Connection, orchestration: str, logical_port: str) -> list[DeployedOrchestration]:
    """Return the versions of an orchestration whose code sends to a logical port, the newest last. Raise NotFound if
    there are none."""
    deployed = read_orchestrations(connection)
    find_named({one.name: one for one in deployed}, orchestration, "orchestration", none=NONE_APPLIED)
    versions = [one for one in deployed if one.name == orchestration]
    found = [one for one in versions if logical_port in one.logical_ports]
    if not found:
        known = {name for one in versions for name in one.logical_ports}
        raise NotFound(
            f"The orchestration {orchestration!r} has no logical port {logical_port!r}.",
            hint=suggest_names(logical_port, known, "Its code sends to", none="no port with a constant name"),
        )
    return found


def _get_binding(connection: Connection, one: DeployedOrchestration, logical_port: str) -> PortBinding:
    return next(found for found in list_bindings(connection, one) if found.logical_port == logical_port)


def _check_calls(connection: Connection, one: DeployedOrchestration, logical_port: str) -> None:
    """Raise StateError if what a logical port is bound to cannot do what the code asks of it."""
    targets = read_binding_targets(connection)
    bound = read_bound_names(connection, targets)
    name, _ = find_target(one.name, logical_port, one.declared_bindings, bound)
    found = None if name is None else targets.get(name)
    two_way = None if found is None or found.is_group else found.two_way
    for call in one.logical_ports[logical_port]:
        if (why := describe_wrong_binding(logical_port, call, name, two_way=two_way)) is not None:
            raise StateError(
                f"The logical port {logical_port!r} of orchestration {one.name!r} cannot be bound to "
                f"{name_target(name)!r}.",
                why=why[0].upper() + why[1:],
            )
