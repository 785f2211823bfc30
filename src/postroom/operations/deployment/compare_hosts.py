"""Compare the hosts that an application declares with the deployed ones, and check what may run on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from postroom.adapters import HttpReceive
from postroom.application import DEFAULT_HOST, ApplicationDefinition, Throttling
from postroom.application.checks.conflicts import to_application_properties
from postroom.errors import Problem
from postroom.filters.authorisation import NO_APPLICATION_PROPERTIES, ApplicationProperties
from postroom.operations.deployment.deployed import Deployed
from postroom.operations.deployment.plan import Action, ChangeKind, Difference, PlanStep
from postroom.properties import dotted_name, split_key


def find_host_problems(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[Problem]:
    """Yield the ports and locations that cannot work on their hosts."""
    yield from _find_authentication_problems(definition, deployed)
    yield from _find_isolation_problems(definition, deployed)


def plan_hosts(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[PlanStep]:
    for name in dict.fromkeys((DEFAULT_HOST, *(host.name for host in definition.hosts))):
        known = deployed.hosts.get(name.lower())
        after, before = resolve_host_settings(definition, deployed, name), HostSettings()
        if known is not None:
            before = HostSettings(
                trusted=known.trusted,
                isolated=known.isolated,
                properties=deployed.application_properties.get(known.host_id, NO_APPLICATION_PROPERTIES),
                throttling=known.throttling,
            )
        differences = tuple(
            Difference(field=field, before=old, after=new)
            for field, old, new in (
                ("trusted", _format_flag(before.trusted), _format_flag(after.trusted)),
                ("isolated", _format_flag(before.isolated), _format_flag(after.isolated)),
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
    properties: ApplicationProperties = NO_APPLICATION_PROPERTIES
    throttling: Throttling = field(default_factory=Throttling)


def resolve_host_settings(definition: ApplicationDefinition, deployed: Deployed, name: str) -> HostSettings:
    """Return the settings of a host. The declaration of this application takes precedence over those of other
    applications."""
    trusted: bool | None = None
    isolated: bool | None = None
    throttling: Throttling | None = None
    properties: ApplicationProperties | None = None
    for application in (definition, *deployed.others):
        for host in application.hosts:
            if host.name.lower() == name.lower():
                trusted = host.trusted if trusted is None else trusted
                isolated = host.isolated if isolated is None else isolated
                throttling = host.throttling if throttling is None else throttling
                if properties is None and host.properties is not None:
                    properties = to_application_properties(host)
    return HostSettings(
        trusted=trusted is True,
        isolated=isolated is True,
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


def _find_isolation_problems(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[Problem]:
    """Yield the send ports, and the locations that claim files or read rows, on isolated hosts (HST-02). If this
    application makes a host isolated, those of other applications count too."""
    isolated = {
        name.lower()
        for application in (definition, *deployed.others)
        for name in (host.name for host in application.hosts)
        if resolve_host_settings(definition, deployed, name).isolated
    }
    own = {host.name.lower(): host.position for host in definition.hosts}
    for application in (definition, *deployed.others):
        endpoints = [
            *(("send port", port.name, port.host, port.position) for port in application.send_ports),
            *(
                ("location", location.name, location.host, location.position)
                for port in application.receive_ports
                for location in port.locations
                if location.adapter.receives_on_spark and not isinstance(location.adapter, HttpReceive)
            ),
        ]
        for what, name, host, position in endpoints:
            if host.lower() not in isolated:
                continue
            text = (
                f"{what} {name!r}: the host {host!r} is isolated. It only receives, by HTTP or with adapters that it"
                " polls. Give it another host."
            )
            if application is definition:
                yield position.problem(text)
            elif host.lower() in own:
                yield own[host.lower()].problem(f"{text} It belongs to the application {application.name!r}.")
