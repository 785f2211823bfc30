"""Store orchestrations and change their state, in the caller's transaction and under the routing lock."""

from __future__ import annotations

import uuid
from dataclasses import replace

from postroom.application import OrchestrationDefinition
from postroom.filters.text import parse
from postroom.messagebox.configuration.hosts import ServiceClass, get_host
from postroom.messagebox.configuration.properties import read_deployed_properties
from postroom.messagebox.configuration.services import ServiceState, store_state
from postroom.messagebox.connection import Connection
from postroom.messagebox.orchestrations import (
    DeployedOrchestration,
    create_correlation_type,
    find_convoy_set,
    store_convoy_set,
    store_orchestration,
)
from postroom.messagebox.service_states import start_service
from postroom.messagebox.subscriptions import ServiceSubscriptions, SubscribingService, remove_subscriptions
from postroom.properties import Property
from postroom.system_properties import BTS

#: The keys by which every orchestration can wait: for messages at a self-correlating port, and for acknowledgements of
#: a send port group or of a send port.
_RUNTIME_CORRELATIONS = (
    (BTS.PartnerService.key,),
    (BTS.AckID.key,),
    (BTS.AckID.key, BTS.AckSendPortID.key),
)


def deploy_orchestration(
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
    state = ServiceState(declared.state) if known is None else known.state
    if known is not None:
        unenlist_orchestration(connection, known)
    stored = store_orchestration(
        connection,
        declared.to_stored(),
        id=new_id if known is None else known.service_id,
        application_id=application_id,
        host_id=host_id,
        is_newest=is_newest,
    )
    # Now: a new type changes the routing, and an instance must not wait for the exclusive routing lock.
    for keys in (*stored.correlations, *_RUNTIME_CORRELATIONS):
        create_correlation_type(connection, keys)
    if state is not ServiceState.BOUND:
        stored = enlist_orchestration(connection, stored)
    if state is ServiceState.STARTED:
        start_service(connection, stored.service_id)


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
            ordered=one.is_ordered and bool(one.convoy),
        )
    store_state(connection, one.service_id, ServiceState.STOPPED)
    return replace(one, state=ServiceState.STOPPED, subscription_id=subscription_id)


def unenlist_orchestration(connection: Connection, one: DeployedOrchestration) -> DeployedOrchestration:
    """Remove its activation subscription. Instances continue."""
    remove_subscriptions(connection, one.service_id)
    store_state(connection, one.service_id, ServiceState.BOUND)
    return replace(one, state=ServiceState.BOUND, subscription_id=None)


def _choose_convoy_set(
    connection: Connection, subscriptions: ServiceSubscriptions, one: DeployedOrchestration, properties: list[Property]
) -> int:
    """Return the convoy set that it had before, or that another version has. So a message still joins the instance of
    its values after an apply, including one of an older version."""
    chosen = find_convoy_set(connection, one)
    if chosen is None:
        by_key = {prop.key: prop for prop in properties}
        chosen = subscriptions.create_convoy_set(connection, [by_key[key] for key in one.convoy])
    store_convoy_set(connection, one.service_id, chosen)
    return chosen
