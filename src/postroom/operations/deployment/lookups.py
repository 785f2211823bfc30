"""Lookups, as artifacts of an application. They are started as long as they are deployed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from postroom.application import LookupDefinition
from postroom.errors import Problem
from postroom.filters.text import format_filter
from postroom.messagebox.configuration.applications import StoredApplication
from postroom.messagebox.configuration.hosts import ServiceClass, get_host
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import Connection
from postroom.messagebox.lookups import DeployedLookup, delete_lookup, read_lookups, store_lookup
from postroom.messagebox.subscriptions import ServiceSubscriptions, SubscribingService, remove_subscriptions
from postroom.operations.deployment.artifacts import ArtifactKind, Comparison, Deployment
from postroom.operations.deployment.backlog import describe_restored
from postroom.operations.deployment.differences import find_differences
from postroom.operations.deployment.plan import ChangeKind, Difference, PlanStep
from postroom.properties import dotted_name, split_key

#: The fields that the subscription depends on.
_SUBSCRIPTION_FIELDS = {"host", "filter"}


class _Lookups(ArtifactKind[LookupDefinition, DeployedLookup]):
    kind = ChangeKind.LOOKUP
    table = "lookups"
    id_field = "service_id"
    keeps_instances = True
    moves_with_name = "its entries and instances"

    def read(self, connection: Connection, application: StoredApplication) -> Iterable[DeployedLookup]:
        return read_lookups(connection, application_id=application.id)

    def find_differences(
        self, compared: Comparison, declared: LookupDefinition, known: DeployedLookup
    ) -> tuple[Difference, ...]:
        host = compared.deployed.host_name(known.host_id)
        return find_differences(
            {"host": declared.host, "filter": format_filter(declared.filter)}, {"host": host, "filter": known.filter}
        )

    def get_state(self, artifact: Any) -> None:
        return None

    def describe_new(self, compared: Comparison, declared: LookupDefinition) -> Iterator[str]:
        yield f"by {declared.key.dotted_name}, filter: {format_filter(declared.filter)}"
        service_id = compared.deployed.find_removed(self.kind, declared.name)
        if service_id is not None:
            yield "starts without entries"
            old_name = compared.deployed.get_removed_name(self.kind, declared.name)
            counts = compared.deployed.backlog.get(service_id)
            yield describe_restored(counts, None if old_name == declared.name else old_name)

    def describe_removal(self, compared: Comparison, known: DeployedLookup) -> Iterator[str]:
        yield "its entries are deleted"

    def describe_change(
        self,
        compared: Comparison,
        declared: LookupDefinition,
        known: DeployedLookup,
        differences: tuple[Difference, ...],
    ) -> Iterator[str]:
        changed = {difference.field for difference in differences}
        if "host" in changed:
            old = compared.deployed.host_name(known.host_id)
            yield f"queued messages stay with host {old}, which has to run until they are applied"
        if "filter" in changed:
            yield "entries stay as they are"

    def find_problems(self, compared: Comparison) -> Iterator[Problem]:
        """Yield lookups with another key. Their entries could not be found any more."""
        for declared in compared.definition.lookups:
            known = compared.deployed.get(self).get(declared.name)
            if known is not None and known.key_property != declared.key.key:
                yield declared.position.problem(
                    f"lookup {declared.name!r} has entries by {dotted_name(*split_key(known.key_property))}, and its "
                    f"key cannot become {declared.key.dotted_name}. Use another name, and publish the messages again."
                )

    def store(
        self, deployment: Deployment, step: PlanStep, declared: LookupDefinition, known: DeployedLookup | None
    ) -> None:
        connection, service_id = deployment.connection, deployment.get_id(self, declared.name)
        host_id = deployment.get_host_id(declared.host)
        store_lookup(
            connection,
            declared.to_stored(),
            id=service_id,
            application_id=deployment.application_id,
            host_id=host_id,
        )
        if known is not None and not _SUBSCRIPTION_FIELDS & {difference.field for difference in step.differences}:
            return
        remove_subscriptions(connection, service_id)
        subscriptions = ServiceSubscriptions(get_host(connection, host_id), ServiceClass.CACHING)
        subscription_id = subscriptions.activate(
            connection,
            SubscribingService(service_id=service_id, name=declared.name),
            declared.filter,
        )
        subscriptions.set_state(connection, subscription_id, ServiceState.STARTED)

    def remove(self, deployment: Deployment, known: DeployedLookup) -> None:
        remove_subscriptions(deployment.connection, known.service_id)
        delete_lookup(deployment.connection, known.service_id)
        deployment.remove_service(known.service_id)


LOOKUPS = _Lookups()
