"""Compare the hosts that an application declares with the deployed ones, check what may run on them, and store them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from postroom.application import DEFAULT_HOST, ApplicationDefinition, Throttling
from postroom.application.checks.conflicts import to_application_properties
from postroom.application.handler import Handler, describe_handlers
from postroom.application.source_position import SourcePosition
from postroom.errors import Problem
from postroom.filters.authorisation import NO_APPLICATION_PROPERTIES, ApplicationProperties
from postroom.messagebox.configuration.hosts import (
    read_hosts,
    set_isolated,
    set_trusted,
    store_application_properties,
)
from postroom.messagebox.connection import Connection
from postroom.messagebox.migrate import create_host
from postroom.messagebox.throttling.load import store_thresholds
from postroom.operations.deployment.deployed import Deployed
from postroom.operations.deployment.plan import Action, ChangeKind, Difference, Plan, PlanStep
from postroom.ports.handlers import store_handlers
from postroom.properties import dotted_name, split_key

_ISOLATED = "An isolated host only receives, by HTTP or with adapters that it polls."


def find_host_problems(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[Problem]:
    """Yield the ports and locations that cannot work on their hosts."""
    yield from _find_authentication_problems(definition, deployed)
    yield from _find_handler_problems(definition, deployed)


def plan_hosts(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[PlanStep]:
    for name in dict.fromkeys((DEFAULT_HOST, *(host.name for host in definition.hosts))):
        known = deployed.hosts.get(name.lower())
        after, before = resolve_host_settings(definition, deployed, name), HostSettings()
        if known is not None:
            before = HostSettings(
                trusted=known.trusted,
                isolated=known.isolated,
                handlers=deployed.handlers.get(known.host_id),
                properties=deployed.application_properties.get(known.host_id, NO_APPLICATION_PROPERTIES),
                throttling=known.throttling,
            )
        differences = tuple(
            Difference(field=field, before=old, after=new)
            for field, old, new in (
                ("trusted", _format_flag(before.trusted), _format_flag(after.trusted)),
                ("isolated", _format_flag(before.isolated), _format_flag(after.isolated)),
                ("handlers", describe_handlers(before.handlers), describe_handlers(after.handlers)),
                ("properties", _format_properties(before.properties), _format_properties(after.properties)),
                ("throttling", str(before.throttling), str(after.throttling)),
            )
            if old != new
        )
        action = Action.CREATE if known is None else Action.CHANGE if differences else Action.KEEP
        yield PlanStep(kind=ChangeKind.HOST, name=known.name if known else name, action=action, differences=differences)


@dataclass(frozen=True, kw_only=True)
class HostSettings:
    """The settings of a host."""

    trusted: bool = False
    isolated: bool = False
    handlers: tuple[Handler, ...] | None = None
    """The declared handlers. None: the default handlers."""
    properties: ApplicationProperties = NO_APPLICATION_PROPERTIES
    throttling: Throttling = field(default_factory=Throttling)

    def has_handler(self, handler: Handler) -> bool:
        """Return True if the host runs this adapter in this direction."""
        if self.handlers is not None:
            return handler.key in (declared.key for declared in self.handlers)
        return not self.isolated or handler.can_be_isolated


def resolve_host_settings(definition: ApplicationDefinition, deployed: Deployed, name: str) -> HostSettings:
    """Return the settings of a host. The declaration of this application takes precedence over those of other
    applications."""
    trusted: bool | None = None
    isolated: bool | None = None
    handlers: tuple[Handler, ...] | None = None
    throttling: Throttling | None = None
    properties: ApplicationProperties | None = None
    for application in (definition, *deployed.others):
        for host in application.hosts:
            if host.name.lower() == name.lower():
                trusted = host.trusted if trusted is None else trusted
                isolated = host.isolated if isolated is None else isolated
                handlers = host.handlers if handlers is None else handlers
                throttling = host.throttling if throttling is None else throttling
                if properties is None and host.properties is not None:
                    properties = to_application_properties(host)
    return HostSettings(
        trusted=trusted is True,
        isolated=isolated is True,
        handlers=handlers,
        properties=properties or NO_APPLICATION_PROPERTIES,
        throttling=throttling or Throttling(),
    )


def _format_flag(flag: bool) -> str:
    return "yes" if flag else "no"


def _format_properties(properties: ApplicationProperties) -> str:
    return ", ".join(f"{dotted_name(*split_key(key))} = {text!r}" for key, text in sorted(properties)) or "none"


def _find_authentication_problems(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[Problem]:
    """Yield the locations that require authentication on a host that is not trusted. All their messages would fail."""
    for port in definition.receive_ports:
        for location in port.locations if port.authentication != "none" else ():
            if not resolve_host_settings(definition, deployed, location.host).trusted:
                yield location.position.problem(
                    f"location {location.name!r}: the receive port {port.name!r} requires authentication, but the host "
                    f"{location.host!r} is not trusted. Declare it: app.host({location.host!r}, trusted=True)."
                )


def _find_handler_problems(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[Problem]:
    """Yield the handlers that an isolated host cannot have (HST-02), and the locations and ports on hosts without a
    handler for their adapter (HST-05). If this application changes a host, those of other applications count too."""
    own = {host.name.lower(): host.position for host in definition.hosts}
    for host in definition.hosts:
        settings = resolve_host_settings(definition, deployed, host.name)
        for handler in (settings.handlers or ()) if settings.isolated else ():
            if not handler.can_be_isolated:
                yield host.position.problem(f"host {host.name!r}: {_ISOLATED} Remove the handler {handler}.")
    for application in (definition, *deployed.others):
        for endpoint in _list_endpoints(application):
            settings = resolve_host_settings(definition, deployed, endpoint.host)
            if settings.has_handler(endpoint.handler):
                continue
            text = f"{endpoint.name}: the host {endpoint.host!r} "
            if settings.isolated:
                text += f"is isolated. {_ISOLATED} Give it another host."
            else:
                kind, direction = endpoint.handler.key
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
    handler: Handler
    position: SourcePosition


def _list_endpoints(application: ApplicationDefinition) -> Iterator[_Endpoint]:
    """Yield the send ports of an application, with each of their adapters, and its locations."""
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


def store_hosts(connection: Connection, definition: ApplicationDefinition, deployed: Deployed, plan: Plan) -> None:
    """Create the new hosts, and store the settings of new and changed hosts."""
    has_default = any(host.is_default for host in deployed.hosts.values())
    for step in plan.select(ChangeKind.HOST, Action.CREATE):
        create_host(connection, step.name, is_default=not has_default and step.name == DEFAULT_HOST)
    known = {host.name.lower(): host for host in read_hosts(connection)}
    for step in plan.select(ChangeKind.HOST, Action.CREATE, Action.CHANGE):
        host = known[step.name.lower()]
        settings = resolve_host_settings(definition, deployed, host.name)
        if settings.trusted is not host.trusted:
            set_trusted(connection, host.host_id, trusted=settings.trusted)
        if settings.isolated is not host.isolated:
            set_isolated(connection, host.host_id, isolated=settings.isolated)
        store_handlers(connection, host.host_id, settings.handlers or ())
        store_application_properties(connection, host.host_id, settings.properties)
        store_thresholds(connection, host.host_id, settings.throttling)
