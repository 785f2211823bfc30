"""Create and change the hosts of a plan, inside the caller's transaction."""

from __future__ import annotations

from postroom.application import DEFAULT_HOST, ApplicationDefinition
from postroom.messagebox.configuration.hosts import (
    read_hosts,
    set_isolated,
    set_trusted,
    store_application_properties,
)
from postroom.messagebox.connection import Connection
from postroom.messagebox.migrate import create_host
from postroom.messagebox.throttling.load import store_thresholds
from postroom.operations.deployment.compare_hosts import resolve_host_settings
from postroom.operations.deployment.deployed import Deployed
from postroom.operations.deployment.plan import Action, ChangeKind, Plan
from postroom.ports.handlers import store_handlers


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
