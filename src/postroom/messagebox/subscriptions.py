"""How a service class subscribes, whichever it is: activation and instance subscriptions, convoys, and their end.

    subscriptions = ServiceSubscriptions(host, ServiceClass.ORCHESTRATIONS)
    activation = subscriptions.activate(connection, service, BTS.MessageType == "Order", convoy=[OrderId])
    subscriptions.set_state(connection, activation, SubscriptionState.STARTED)
    ...
    subscriptions.wait(connection, service, instance_id, (BTS.MessageType == "Reply") & (OrderId == "4711"))
    left = subscriptions.complete(connection, instance_id)          # what was routed to it and never consumed

Everything runs inside the caller's transaction, through the procedures of the host, so that a host can subscribe only
for itself (SUB-07). In a transaction that also publishes, subscribe first: the first subscription that waits by some
list of properties changes the routing, for which publishes have to be over.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from postroom.errors import DefinitionError, NotFound
from postroom.filters.access import predicate_tables
from postroom.filters.expression import Filter, Operator
from postroom.filters.text import format_filter
from postroom.messagebox.configuration import Host, SendPortGroup, ServiceClass
from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement
from postroom.messagebox.storage.stored_values import to_stored, value_key
from postroom.properties import Property

_MOST_IN_A_CONVOY = 3


class SubscriptionState(IntEnum):
    """What becomes of a match: it is served, it is suspended, or there is none."""

    STARTED = 1
    STOPPED = 2
    DISABLED = 3


@dataclass(frozen=True, kw_only=True)
class SubscribingService:
    """Whom a subscription is for: a send port, an orchestration, a receive port that waits for a response."""

    service_id: uuid.UUID
    name: str


@dataclass(frozen=True, kw_only=True)
class UnconsumedMessage:
    """A message that was routed to an instance and never consumed by it. It stays in the queue."""

    seq: int
    message_id: uuid.UUID
    subscription_id: int | None
    claim_id: uuid.UUID | None


class ServiceSubscriptions:
    """The subscriptions of one service class on one host."""

    def __init__(self, host: Host, service_class: ServiceClass) -> None:
        self._host = host.name.lower()
        self._service_class = service_class

    def activate(
        self,
        connection: Connection,
        service: SubscribingService,
        filter: Filter,
        *,
        priority: int = 5,
        convoy: Sequence[Property] = (),
        convoy_set_id: int | None = None,
        ordered: bool = False,
        request_response: bool = False,
    ) -> int:
        """An activation subscription, stopped: a match makes a new instance. With a convoy (one to three properties, or
        a set that several subscriptions share) messages with equal values of these join the instance of the first."""
        if convoy:
            convoy_set_id = self.create_convoy_set(connection, convoy)
        subscription_id = int(
            self._call(
                connection,
                "create_subscription",
                "%s::smallint, %s, %s, %s, %s::smallint, %s::int, %s, %s",
                *(self._service_class, service.service_id, service.name, format_filter(filter), priority),
                *(convoy_set_id, ordered, request_response),
            )
        )
        with connection.cursor() as cursor:
            cursor.executemany(
                f"SELECT insert_predicate_{self._host}(%s, %s, %s::smallint, %s, %s::smallint, %s, %s::bigint,"
                " %s::numeric, %s::double precision)",
                [
                    (
                        *(subscription_id, number, table, predicate.property.key, predicate.operator),
                        *to_stored(predicate.value),
                    )
                    for number, group in enumerate(filter.groups)
                    for predicate, table in zip(group, predicate_tables(group), strict=True)
                ],
            )
        return subscription_id

    def set_state(self, connection: Connection, subscription_id: int, state: SubscriptionState) -> None:
        """Of an activation subscription."""
        self._call(connection, "change_subscription", "%s, %s::smallint", subscription_id, state)

    def remove(self, connection: Connection, subscription_id: int) -> None:
        """An activation subscription is never matched again; what is queued for it stays queued (SUB-21)."""
        self._call(connection, "change_subscription", "%s, NULL::smallint", subscription_id)

    def create_convoy_set(self, connection: Connection, properties: Sequence[Property]) -> int:
        """A convoy set for several activation subscriptions to share."""
        _check_convoy(properties)
        return int(
            self._call(
                connection,
                "create_convoy_set",
                "%s::text[], %s::smallint[]",
                [one.key for one in properties],
                [int(one.value_type) for one in properties],
            )
        )

    def wait(
        self,
        connection: Connection,
        service: SubscribingService,
        instance_id: uuid.UUID,
        filter: Filter,
        *,
        priority: int = 5,
        ordered: bool = False,
        request_response: bool = False,
    ) -> int:
        """An instance subscription: a match goes to this instance. The filter is equalities that all have to hold."""
        group = _equalities(filter)
        return int(
            self._call(
                connection,
                "create_instance_subscription",
                "%s::smallint, %s, %s, %s::smallint, %s, %s::text[], %s::smallint[], %s::text[], %s, %s",
                *(self._service_class, service.service_id, service.name, priority, instance_id),
                [one.property.key for one in group],
                [int(one.property.value_type) for one in group],
                [value_key(one.value) for one in group if one.value is not None],
                *(ordered, request_response),
            )
        )

    def stop_waiting(self, connection: Connection, subscription_id: int) -> bool:
        """One subscription of an instance that goes on; False if it was gone already."""
        return bool(self._call(connection, "remove_instance_subscription", "%s", subscription_id))

    def complete(self, connection: Connection, instance_id: uuid.UUID) -> list[UnconsumedMessage]:
        """The instance is over: nothing is routed to it from this commit on, and its convoy's values are free.

        Waits for publishes that have found it. Returns what is in the queues for it; complete first, in the same
        transaction, what it has consumed."""
        rows = connection.execute(f"SELECT * FROM complete_instance_{self._host}(%s)", (instance_id,))
        return [
            UnconsumedMessage(seq=seq, message_id=message_id, subscription_id=subscription_id, claim_id=claim_id)
            for seq, message_id, subscription_id, claim_id in rows
        ]

    def _call(self, connection: Connection, procedure: str, parameters: str, *arguments: object) -> Any:
        try:
            row = connection.execute(f"SELECT {procedure}_{self._host}({parameters})", arguments).fetchone()
        except NotFound as error:
            raise DefinitionError(
                "A subscription names a property that is not deployed.",
                why=error.why,
                hint="Declare the property in an application, with this type, and apply it first.",
            ) from error
        assert row is not None
        return row[0]


def create_subscription(
    connection: Connection,
    host: Host,
    *,
    service_class: ServiceClass,
    service_id: uuid.UUID,
    service_name: str,
    filter: Filter,
    priority: int,
    group: SendPortGroup | None = None,
) -> int:
    """An activation subscription, stopped, through the host's own procedures; inside the caller's transaction.

    ``group`` is the send port group that it comes through."""
    service = SubscribingService(service_id=service_id, name=service_name)
    made = ServiceSubscriptions(host, service_class).activate(connection, service, filter, priority=priority)
    if group is not None:
        connection.execute(
            "UPDATE subscriptions SET group_id = %s, group_name = %s WHERE id = %s", (group.group_id, group.name, made)
        )
    return made


def deploy_property(connection: Connection, key: str, value_type: int, *, sensitive: bool = False) -> None:
    """Makes a property known, so that filters can use it and messages are routed by it. Sensitive once is for ever."""
    connection.execute(statement("queries/deploy_property"), (key, value_type, sensitive))


def _equalities(filter: Filter) -> Sequence[Any]:
    [group, *others] = filter.groups
    keys = [one.property.key for one in group]
    if others or any(one.operator is not Operator.EQ for one in group) or len(set(keys)) < len(keys):
        raise DefinitionError(
            f"An instance cannot wait for {format_filter(filter)}.",
            why="Instance subscriptions are found by their values: equalities of different properties, joined by and.",
            hint="Compare with == only, and make another subscription in place of an or.",
        )
    return group


def _check_convoy(properties: Sequence[Property]) -> None:
    keys = [one.key for one in properties]
    if not 1 <= len(keys) <= _MOST_IN_A_CONVOY or len(set(keys)) < len(keys):
        raise DefinitionError(
            f"A convoy set has one to {_MOST_IN_A_CONVOY} properties, not {', '.join(keys) or 'none'}.",
            hint="Name each property once.",
        )
