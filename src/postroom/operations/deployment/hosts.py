"""Compare the hosts that an application declares with the deployed ones, check what may run on them, and store them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from postroom.application import DEFAULT_HOST, ApplicationDefinition, HostDefinition
from postroom.application.handler import Handler, describe_handlers
from postroom.application.source_position import SourcePosition
from postroom.errors import Problem
from postroom.messagebox.configuration.hosts import read_hosts, store_host
from postroom.messagebox.connection import Connection
from postroom.messagebox.migrate import create_host
from postroom.operations.deployment.artifacts import Deployed
from postroom.operations.deployment.differences import find_plain_differences
from postroom.operations.deployment.plan import Action, ChangeKind, Plan, PlanStep
from postroom.properties import dotted_name, split_key

_ISOLATED = "An isolated host only receives, by HTTP or with adapters that it polls."


def find_host_problems(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[Problem]:
    """Yield what cannot work on its host, and hosts that cannot change."""
    yield from _find_authentication_problems(definition, deployed)
    yield from _find_handler_problems(definition, deployed)
    for host in definition.hosts:
        if busy := deployed.busy_hosts.get(host.name.lower()):
            yield host.position.problem(
                f"host {host.name!r}: it has {busy}. Whether it is isolated can be changed only while it has none. "
                "Resume or terminate the messages, and stop the host instances first."
            )


def plan_hosts(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[PlanStep]:
    for name in dict.fromkeys((DEFAULT_HOST, *(host.name for host in definition.hosts))):
        known = deployed.hosts.get(name.lower())
        before = HostDefinition(name=name) if known is None else HostDefinition(**{**known.definition, "name": name})
        differences = find_plain_differences(
            _list_fields(resolve_host(definition, deployed, name)), _list_fields(before.merge(()))
        )
        action = Action.CREATE if known is None else Action.CHANGE if differences else Action.KEEP
        yield PlanStep(kind=ChangeKind.HOST, name=known.name if known else name, action=action, differences=differences)


def _list_fields(host: HostDefinition) -> dict[str, object]:
    properties = sorted(host.application_properties)
    return {
        **{name: getattr(host, name) for name in host.list_settings()},
        "handlers": describe_handlers(host.handlers),
        "properties": [f"{dotted_name(*split_key(key))} = {text!r}" for key, text in properties],
    }


def resolve_host(definition: ApplicationDefinition, deployed: Deployed, name: str) -> HostDefinition:
    """Return a host with what all applications declare. The declaration of this application takes precedence."""
    declared = (host for application in (definition, *deployed.others) for host in application.hosts)
    return HostDefinition(name=name).merge(host for host in declared if host.name.lower() == name.lower())


def _find_authentication_problems(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[Problem]:
    """Yield the locations that require authentication on a host that is not trusted. All their messages would fail."""
    for port in definition.receive_ports:
        for location in port.locations if port.authentication != "none" else ():
            if not resolve_host(definition, deployed, location.host).trusted:
                yield location.position.problem(
                    f"location {location.name!r}: the receive port {port.name!r} requires authentication, but the host "
                    f"{location.host!r} is not trusted. Declare it: app.host({location.host!r}, trusted=True)."
                )


def _find_handler_problems(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[Problem]:
    """Yield the handlers, orchestrations and lookups that an isolated host cannot have (HST-02), and the locations and
    ports on hosts without a handler for their adapter (HST-05). If this application changes a host, what other
    applications have on it counts too."""
    own = {host.name.lower(): host.position for host in definition.hosts}
    for host in definition.hosts:
        resolved = resolve_host(definition, deployed, host.name)
        for handler in (resolved.handlers or ()) if resolved.isolated else ():
            if not handler.can_be_isolated:
                yield host.position.problem(f"host {host.name!r}: {_ISOLATED} Remove the handler {handler}.")
    for application in (definition, *deployed.others):
        for endpoint in _list_endpoints(application):
            resolved = resolve_host(definition, deployed, endpoint.host)
            used = endpoint.handler
            if not resolved.isolated if used is None else resolved.has_handler(used):
                continue
            text = f"{endpoint.name}: the host {endpoint.host!r} "
            if used is None or resolved.isolated:
                text += f"is isolated. {_ISOLATED} Give it another host."
            else:
                kind, direction = used.key
                text += (
                    "has no handler for this adapter. Give it another host, or add "
                    f"Handler({kind!r}, {direction!r}) to the handlers of the host."
                )
            if application is definition:
                yield endpoint.position.problem(text)
            elif endpoint.host.lower() in own:
                text += f" It belongs to the application {application.name!r}."
                yield own[endpoint.host.lower()].problem(text)


@dataclass(frozen=True, kw_only=True)
class _Endpoint:
    name: str
    host: str
    handler: Handler | None
    """None for an orchestration or a lookup, which has no adapter."""
    position: SourcePosition


def _list_endpoints(application: ApplicationDefinition) -> Iterator[_Endpoint]:
    """Yield the send ports of an application with each of their adapters, its locations, orchestrations and lookups."""
    for port in application.send_ports:
        for adapter in (port.adapter, *((port.backup.adapter,) if port.backup is not None else ())):
            yield _Endpoint(
                name=f"send port {port.name!r}",
                host=port.host,
                handler=Handler(adapter.kind, "send"),
                position=port.position,
            )
    for receive_port in application.receive_ports:
        for location in receive_port.locations:
            yield _Endpoint(
                name=f"location {location.name!r}",
                host=location.host,
                handler=Handler(location.adapter.kind, "receive"),
                position=location.position,
            )
    for one in application.orchestrations:
        yield _Endpoint(name=f"orchestration {one.name!r}", host=one.host, handler=None, position=one.position)
    for lookup in application.lookups:
        yield _Endpoint(name=f"lookup {lookup.name!r}", host=lookup.host, handler=None, position=lookup.position)


def store_hosts(connection: Connection, definition: ApplicationDefinition, deployed: Deployed, plan: Plan) -> None:
    """Create the new hosts, and store the settings of new and changed hosts."""
    has_default = any(host.is_default for host in deployed.hosts.values())
    for step in plan.select(ChangeKind.HOST, Action.CREATE):
        create_host(connection, step.name, is_default=not has_default and step.name == DEFAULT_HOST)
    known = {host.name.lower(): host for host in read_hosts(connection)}
    for step in plan.select(ChangeKind.HOST, Action.CREATE, Action.CHANGE):
        host = known[step.name.lower()]
        resolved = resolve_host(definition, deployed, host.name)
        store_host(connection, host.host_id, resolved.to_stored(), resolved.application_properties)
