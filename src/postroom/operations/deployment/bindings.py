"""The bindings of orchestrations in a deployment: how an application changes them, and which of them it cannot have.

An operator's binding stays, unless the application declares one for the logical port or its code does not send to the
logical port any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from postroom.application import ApplicationDefinition, OrchestrationDefinition
from postroom.errors import Problem, suggest_names
from postroom.messagebox.bindings import BoundBy, delete_bindings, find_target
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import Connection
from postroom.messagebox.orchestrations import DeployedOrchestration, format_name
from postroom.operations.deployment.artifacts import Deployed
from postroom.operations.deployment.plan import ChangeKind, Difference
from postroom.operations.orchestrations.bindings import (
    BoundNames,
    describe_wrong_binding,
    format_bind_command,
    name_target,
)

_NONE = "none"


def find_binding_differences(
    declared: OrchestrationDefinition,
    known: DeployedOrchestration,
    definition: ApplicationDefinition,
    bound: BoundNames,
) -> Iterator[Difference]:
    """Yield the logical ports that are bound to something else after an apply. A new logical port, or one that the code
    does not name any more, is left out if it is bound by default."""
    kept = _keep_bindings(definition, bound)
    before = {port: find_target(known.name, port, known.declared_bindings, bound) for port in known.logical_ports}
    after = {port: find_target(declared.name, port, dict(declared.bindings), kept) for port, _ in declared.ports}
    for port in sorted(before.keys() | after.keys()):
        old, new = before.get(port), after.get(port)
        if (old and old[0]) == (new and new[0]) and old and new:
            continue
        if all(found is None or found[1] is BoundBy.DEFAULT for found in (old, new)):
            continue
        texts = [_NONE if found is None else name_target(found[0]) for found in (old, new)]
        yield Difference(field=f"binding of {port}", before=texts[0], after=texts[1])


def describe_bindings(
    declared: OrchestrationDefinition, definition: ApplicationDefinition, deployed: Deployed
) -> Iterator[str]:
    """Yield the logical ports that are not bound to the port with the same name."""
    kept = _keep_bindings(definition, deployed.bindings)
    known = _find_ports((definition, *deployed.others))
    for port in dict(declared.ports):
        target, bound_by = find_target(declared.name, port, dict(declared.bindings), kept)
        if bound_by is BoundBy.OPERATOR:
            yield f"{port} stays bound to {name_target(target)}"
        elif bound_by is BoundBy.APPLICATION:
            yield f"{port} is bound to {name_target(target)}"
        elif target not in known:
            yield f"{port} is not bound"


def find_binding_problems(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[Problem]:
    """Yield the orchestrations of all applications that would be bound to a port which no application declares, or
    which cannot do what is asked of it. Names that are computed are checked when a message is sent."""
    kept = _keep_bindings(definition, deployed.bindings)
    known = _find_ports((definition, *deployed.others))
    removed = _find_removed_ports(definition, deployed)
    for application in (definition, *deployed.others):
        is_own = application is definition
        for one in application.orchestrations:
            name = format_name(one.name, one.version)
            known_as = repr(name) if is_own else f"{name!r} of the application {application.name!r}"
            position = one.position if is_own else definition.position
            for port, call in one.ports:
                target, bound_by = find_target(one.name, port, dict(one.bindings), kept)
                text = None
                if target is None or target in known:
                    two_way = None if target is None else known[target]
                    text = describe_wrong_binding(port, call, target, two_way=two_way)
                elif target in removed and (bound_by is BoundBy.OPERATOR or not is_own):
                    text = _describe_removed(one.name, port, target, bound_by, removed[target])
                elif is_own and _is_enlisted(one, deployed):
                    hint = suggest_names(target, known, "There are")
                    text = (
                        f"there is no send port or send port group {target!r}. Declare it, or correct the name. {hint}"
                    )
                if text is not None:
                    yield position.problem(f"orchestration {known_as}: {text}")


def find_start_problems(
    one: OrchestrationDefinition, definition: ApplicationDefinition, deployed: Deployed
) -> Iterator[Problem]:
    """Yield the ports that are not enlisted, to which a new orchestration that is to start is bound (ORS-02)."""
    kept = _keep_bindings(definition, deployed.bindings)
    declared = {
        **{port.name: ServiceState(port.state) for port in definition.send_ports},
        **{group.name: ServiceState(group.state) for group in definition.send_port_groups},
    }
    states = {**declared, **deployed.port_states}
    for port in dict(one.ports):
        target, _ = find_target(one.name, port, dict(one.bindings), kept)
        if target is not None and states.get(target) is ServiceState.BOUND:
            yield one.position.problem(
                f"orchestration {format_name(one.name, one.version)!r} cannot start: {target!r}, to which its logical "
                f"port {port!r} is bound, is not enlisted. Enlist {target!r}, or declare state='stopped'."
            )


def drop_bindings(connection: Connection, definition: ApplicationDefinition, orchestration: str) -> None:
    """Delete the bindings of operators that an application replaces, or that it has no logical port for any more."""
    versions = [one for one in definition.orchestrations if one.name == orchestration]
    named = {port for one in versions for port, _ in one.ports}
    declared = {port for one in versions for port, _ in one.bindings}
    delete_bindings(connection, orchestration, besides=named - declared)


def _keep_bindings(definition: ApplicationDefinition, bound: BoundNames) -> BoundNames:
    """Return the bindings of operators that stay when the application is applied."""
    replaced = {(one.name, port) for one in definition.orchestrations for port, _ in one.bindings}
    return {key: target for key, target in bound.items() if key not in replaced}


def _find_ports(applications: tuple[ApplicationDefinition, ...]) -> dict[str, bool | None]:
    """Return whether each send port is two-way, by name. None: a group."""
    ports: dict[str, bool | None] = {port.name: port.two_way for one in applications for port in one.send_ports}
    return {**ports, **{group.name: None for one in applications for group in one.send_port_groups}}


def _find_removed_ports(definition: ApplicationDefinition, deployed: Deployed) -> Mapping[str, str | None]:
    """Return the send ports and groups that the application removes or renames, by old name, with the new name."""
    declared = {port.name for port in definition.send_ports} | {group.name for group in definition.send_port_groups}
    known = (*deployed.artifacts.get(ChangeKind.SEND_PORT, {}), *deployed.artifacts.get(ChangeKind.SEND_PORT_GROUP, {}))
    renamed = {old: new for new, old in deployed.get_renames(ChangeKind.SEND_PORT).old_names.items()}
    return {**{name: None for name in known if name not in declared}, **renamed}


def _describe_removed(orchestration: str, port: str, target: str, bound_by: BoundBy, new_name: str | None) -> str:
    who = "an operator has bound" if bound_by is BoundBy.OPERATOR else "its application binds"
    bound = f"{who} its logical port {port!r} to {target!r}"
    if new_name is not None:
        command = format_bind_command(orchestration, port, target)
        return (
            f"{bound}, which gets the name {new_name!r}. Bind it first, then its binding moves with the port: {command}"
        )
    return f"{bound}, which cannot be removed. Bind it to another one first: {format_bind_command(orchestration, port)}"


def _is_enlisted(one: OrchestrationDefinition, deployed: Deployed) -> bool:
    """Return True if a version is enlisted after the apply. A new one has its declared state."""
    known = deployed.artifacts.get(ChangeKind.ORCHESTRATION, {}).get(format_name(one.name, one.version))
    return (ServiceState(one.state) if known is None else known.state) is not ServiceState.BOUND
