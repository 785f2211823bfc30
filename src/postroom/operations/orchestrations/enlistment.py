"""Store orchestrations and change their state, in the caller's transaction and under the routing lock."""

from __future__ import annotations

import uuid
from dataclasses import replace

from psycopg.types.json import Jsonb

from postroom.application import OrchestrationDefinition
from postroom.filters.text import format_filter, parse
from postroom.messagebox.configuration.hosts import ServiceClass, get_host
from postroom.messagebox.configuration.properties import read_deployed_properties
from postroom.messagebox.connection import Connection, read_value
from postroom.messagebox.orchestrations import DeployedOrchestration, OrchestrationState, read_orchestrations
from postroom.messagebox.statements import statement
from postroom.messagebox.subscriptions import ServiceSubscriptions, SubscribingService
from postroom.operations.ports.enlistment import start_service
from postroom.properties import Property
from postroom.system_properties import BTS

#: The keys by which every orchestration can wait: for messages at a self-correlating port, and for acknowledgements of
#: a send port group or of a send port.
_RUNTIME_CORRELATIONS = (
    (BTS.PartnerService.key,),
    (BTS.AckID.key,),
    (BTS.AckID.key, BTS.AckSendPortID.key),
)

_BOUND, _STOPPED, _STARTED = OrchestrationState.BOUND, OrchestrationState.STOPPED, OrchestrationState.STARTED


def store_orchestration(
    connection: Connection,
    declared: OrchestrationDefinition,
    *,
    known: DeployedOrchestration | None,
    new_id: uuid.UUID,
    application_id: uuid.UUID,
    host_id: int,
    is_newest: bool,
) -> None:
    """Store a declared orchestration. A new one gets its declared state. A known one keeps its state, and its
    subscription is replaced."""
    state = OrchestrationState[declared.state.upper()] if known is None else known.state
    if known is not None:
        unenlist_orchestration(connection, known)
    connection.execute(
        statement("queries/store_orchestration"),
        {
            "id": new_id if known is None else known.service_id,
            "application_id": application_id,
            "host_id": host_id,
            "name": declared.name,
            "version": declared.version,
            "file": declared.file,
            "code": declared.code,
            "filter": None if declared.filter is None else format_filter(declared.filter),
            "convoy": [prop.key for prop in declared.convoy],
            "ordered": declared.ordered,
            "correlations": Jsonb([[prop.key for prop in properties] for properties in declared.correlations]),
            "priority": declared.priority,
            "is_newest": is_newest,
        },
    )
    stored = next(
        one
        for one in read_orchestrations(connection, host_id=host_id)
        if (one.name, one.version) == (declared.name, declared.version)
    )
    _create_correlation_types(connection, stored)
    if state is not _BOUND:
        stored = enlist_orchestration(connection, stored)
    if state is _STARTED:
        start_service(connection, "orchestration", stored.service_id)


def enlist_orchestration(connection: Connection, one: DeployedOrchestration) -> DeployedOrchestration:
    """Create its activation subscription, stopped. An older version has none. One without a filter is activated by
    messages with which other orchestrations start it."""
    subscription_id = None
    if one.is_newest:
        properties = read_deployed_properties(connection)
        subscriptions = ServiceSubscriptions(get_host(connection, one.host_id), ServiceClass.ORCHESTRATIONS)
        subscription_id = subscriptions.activate(
            connection,
            SubscribingService(service_id=one.service_id, name=one.name),
            BTS.ActivationServiceID == one.name if one.filter is None else parse(one.filter, properties),
            priority=one.priority,
            convoy_set_id=_choose_convoy_set(connection, subscriptions, one, properties) if one.convoy else None,
            ordered=one.ordered and bool(one.convoy),
        )
    return _store_state(connection, one, _STOPPED, subscription_id)


def unenlist_orchestration(connection: Connection, one: DeployedOrchestration) -> DeployedOrchestration:
    """Remove its activation subscription. Instances continue."""
    if one.subscription_id is not None:
        connection.execute("SELECT remove_subscription(%s)", (one.subscription_id,))
    return _store_state(connection, one, _BOUND, None)


def _choose_convoy_set(
    connection: Connection, subscriptions: ServiceSubscriptions, one: DeployedOrchestration, properties: list[Property]
) -> int:
    """Return the convoy set that it had before, or that another version has. So a message still joins the instance of
    its values after an apply, including one of an older version."""
    row = connection.execute(
        "SELECT convoy_set_id FROM orchestrations"
        " WHERE name = %s AND host_id = %s AND convoy = %s AND convoy_set_id IS NOT NULL ORDER BY version DESC LIMIT 1",
        (one.name, one.host_id, list(one.convoy)),
    ).fetchone()
    by_key = {prop.key: prop for prop in properties}
    chosen: int = (
        subscriptions.create_convoy_set(connection, [by_key[key] for key in one.convoy]) if row is None else row[0]
    )
    connection.execute("UPDATE orchestrations SET convoy_set_id = %s WHERE id = %s", (chosen, one.service_id))
    return chosen


def _create_correlation_types(connection: Connection, one: DeployedOrchestration) -> None:
    """Create the correlation types that its instances will need: a new type changes the routing, and an instance must
    not wait for the exclusive routing lock."""
    for keys in (*one.correlations, *_RUNTIME_CORRELATIONS):
        read_value(
            connection,
            "SELECT correlation_type(array_agg(id ORDER BY id)) FROM properties WHERE key = ANY (%s)",
            list(keys),
        )


def _store_state(
    connection: Connection, one: DeployedOrchestration, state: OrchestrationState, subscription_id: int | None
) -> DeployedOrchestration:
    connection.execute(
        "UPDATE orchestrations SET state = %s, subscription_id = %s WHERE id = %s",
        (state, subscription_id, one.service_id),
    )
    return replace(one, state=state, subscription_id=subscription_id)
