"""Creates and removes subscriptions: activation and instance subscriptions, convoys, subscriptions of send ports.

    subscriptions = ServiceSubscriptions(host, ServiceClass.ORCHESTRATIONS)
    convoys = subscriptions.create_convoy_set(connection, [OrderId])
    activation = subscriptions.activate(connection, service, BTS.MessageType == "Order", convoy_set_id=convoys)
    subscriptions.set_state(connection, activation, ServiceState.STARTED)
    ...
    subscriptions.wait(connection, service, instance_id, (BTS.MessageType == "Reply") & (OrderId == "4711"))
    unconsumed = subscriptions.complete(connection, instance_id)    # the number of messages that it never consumed

All functions run in the caller's transaction and call the procedures of the host, so a host can subscribe only for
itself (SUB-07). In a transaction that also publishes, subscribe first: the first instance subscription by a new list of
properties changes the routing, and waits until running publishes have ended.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from postroom.errors import DefinitionError, NotFound
from postroom.filters.access import choose_predicate_tables
from postroom.filters.expression import Filter, Operator
from postroom.filters.text import format_filter
from postroom.messagebox.configuration.hosts import Host, ServiceClass
from postroom.messagebox.configuration.send_port_groups import SendPortGroup
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import Connection, Precondition, read_value, select_calls
from postroom.messagebox.statements import statement
from postroom.messagebox.storage.stored_values import to_stored, value_key
from postroom.properties import MAX_CONVOY_PROPERTIES, Property

_WAIT_PARAMETERS = (
    "%s::service_class, %s, %s, %s::smallint, %s, %s::text[], %s::smallint[], %s::text[], %s, %s, %s::int, %s::interval"
)

#: The priority of messages that join an instance (DEQ-12).
JOIN_PRIORITY = 5


@dataclass(frozen=True, kw_only=True)
class SubscribingService:
    """The owner of a subscription: a send port, an orchestration, or a receive port that waits for a response."""

    service_id: uuid.UUID
    name: str


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
        convoy_set_id: int | None = None,
        ordered: bool = False,
        request_response: bool = False,
        send_port_group: SendPortGroup | None = None,
    ) -> int:
        """Create a stopped activation subscription: each match creates a new instance. Return its id.

        With a convoy set messages with equal values join the instance of the first message, with ``JOIN_PRIORITY``. A
        port may subscribe through a ``send_port_group``.
        """
        subscription_id = int(
            self._call(
                connection,
                "create_subscription",
                "%s::service_class, %s, %s, %s, %s::smallint, %s::int, %s, %s",
                self._service_class,
                service.service_id,
                service.name,
                format_filter(filter),
                priority,
                convoy_set_id,
                ordered,
                request_response,
            )
        )
        with connection.cursor() as cursor:
            cursor.executemany(
                f"SELECT insert_predicate_{self._host}(%s, %s, %s::smallint, %s, %s::smallint, %s, %s::bigint,"
                " %s::numeric, %s::double precision)",
                [
                    (
                        subscription_id,
                        number,
                        table,
                        predicate.property.key,
                        predicate.operator,
                        *to_stored(predicate.value),
                    )
                    for number, group in enumerate(filter.groups)
                    for predicate, table in zip(group, choose_predicate_tables(group), strict=True)
                ],
            )
        if send_port_group is not None:
            connection.execute(
                "UPDATE subscriptions SET group_id = %s, group_name = %s WHERE id = %s",
                (send_port_group.group_id, send_port_group.name, subscription_id),
            )
        return subscription_id

    def set_state(self, connection: Connection, subscription_id: int, state: ServiceState) -> None:
        """Set the state of an activation subscription."""
        self._call(connection, "change_subscription", "%s, %s::service_state", subscription_id, state)

    def replace(self, connection: Connection, service: SubscribingService, filter: Filter | None) -> None:
        """Let a service have one activation subscription, started, with this filter. None: it has no subscription."""
        query = "SELECT id, filter FROM subscriptions WHERE service_id = %s AND removed_at IS NULL"
        known: dict[int, str] = dict(connection.execute(query, (service.service_id,)).fetchall())
        if filter is not None and list(known.values()) == [format_filter(filter)]:
            return
        for subscription_id in sorted(known):
            self.remove(connection, subscription_id)
        if filter is not None:
            self.set_state(connection, self.activate(connection, service, filter), ServiceState.STARTED)

    def remove(self, connection: Connection, subscription_id: int) -> None:
        """Remove an activation subscription. Its queued messages stay queued (SUB-21)."""
        self._call(connection, "change_subscription", "%s, NULL", subscription_id)

    def create_convoy_set(self, connection: Connection, properties: Sequence[Property]) -> int:
        """Create a convoy set of one to three properties. Several activation subscriptions can share it. Return its
        id."""
        _check_convoy(properties)
        return int(
            self._call(
                connection,
                "create_convoy_set",
                "%s::text[], %s::smallint[]",
                [prop.key for prop in properties],
                [int(prop.value_type) for prop in properties],
            )
        )

    def wait(
        self,
        connection: Connection,
        service: SubscribingService,
        instance_id: uuid.UUID,
        filter: Filter,
        *,
        priority: int = JOIN_PRIORITY,
        ordered: bool = False,
    ) -> int:
        """Create an instance subscription: matches are routed to this instance. Return its id.

        The filter consists of equalities that are joined by and."""
        arguments = self._list_wait_arguments(service, instance_id, filter, priority)
        procedure = "create_instance_subscription"
        return int(self._call(connection, procedure, _WAIT_PARAMETERS, *arguments, ordered, False, None, None))

    def build_response_wait(
        self,
        service: SubscribingService,
        instance_id: uuid.UUID,
        filter: Filter,
        *,
        priority: int,
        for_host_instance: int | None = None,
        kept_for: timedelta | None = None,
    ) -> Precondition:
        """Return the precondition that creates the instance subscription of a request.

        With ``for_host_instance`` only that host instance claims the response. After its death the subscription is
        removed, and its matches are suspended. With ``kept_for`` this happens only when that time has passed, so that a
        repeated request can take it over."""
        arguments = self._list_wait_arguments(service, instance_id, filter, priority)
        return Precondition(
            expression=f"create_instance_subscription_{self._host}({_WAIT_PARAMETERS}) IS NOT NULL",
            arguments=(*arguments, False, True, for_host_instance, kept_for),
        )

    def _list_wait_arguments(
        self, service: SubscribingService, instance_id: uuid.UUID, filter: Filter, priority: int
    ) -> tuple[object, ...]:
        group = _get_equalities(filter)
        return (
            self._service_class,
            service.service_id,
            service.name,
            priority,
            instance_id,
            [predicate.property.key for predicate in group],
            [int(predicate.property.value_type) for predicate in group],
            [value_key(predicate.value) for predicate in group if predicate.value is not None],
        )

    def stop_waiting(self, connection: Connection, instance_id: uuid.UUID, filter: Filter) -> bool:
        """Remove the subscriptions of a running instance that wait for the first value of the filter. Return False if
        there is none."""
        [first, *_] = _get_equalities(filter)
        parameters = instance_id, first.property.key, value_key(first.value)
        return bool(self._call(connection, "remove_instance_subscription", "%s, %s, %s", *parameters))

    def complete(self, connection: Connection, instance_id: uuid.UUID) -> int:
        """End an instance: nothing is routed to it after this commit, and the values of its convoy are free.

        Wait for publishes that have matched it. Return the number of its messages, which stay in the queues. The caller
        first completes, in the same transaction, the messages that the instance has consumed.
        """
        return int(read_value(connection, f"SELECT count(*) FROM complete_instance_{self._host}(%s)", instance_id))

    def complete_with_message(self, connection: Connection, instance_id: uuid.UUID, completion: Precondition) -> bool:
        """Complete the last message of an instance, and end the instance, in one statement. Return False, and change
        nothing, if the message was not completed."""
        ended = f"(SELECT count(*) FROM complete_instance_{self._host}(%s))"
        return select_calls(connection, [(ended, (instance_id,))], precondition=completion)

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


def start_subscription(connection: Connection, subscription_id: int) -> None:
    """Start a subscription, as a part of a deployment."""
    connection.execute("SELECT set_subscription_state(%s, %s)", (subscription_id, ServiceState.STARTED))


def remove_subscriptions(
    connection: Connection, service_id: uuid.UUID | None = None, *, group_id: uuid.UUID | None = None
) -> None:
    """Remove the activation subscriptions of a service, or only those through a send port group. Their queued messages
    stay queued (SUB-21)."""
    assert service_id is not None or group_id is not None, "this would remove all subscriptions"
    parameters = {"service_id": service_id, "group_id": group_id}
    connection.execute(statement("queries/remove_subscriptions"), parameters)


def has_subscriptions_by_property(connection: Connection, keys: Sequence[str]) -> bool:
    """Return True if a filter or a correlation names one of these properties. Reads all predicates."""
    return bool(read_value(connection, statement("queries/has_subscriptions_by_property"), list(keys)))


def deploy_property(connection: Connection, key: str, value_type: int, *, sensitive: bool = False) -> None:
    """Deploy a property, so that filters can use it. A property that was sensitive once stays sensitive."""
    connection.execute(statement("queries/deploy_property"), (key, value_type, sensitive))


def _get_equalities(filter: Filter) -> Sequence[Any]:
    [group, *others] = filter.groups
    keys = [predicate.property.key for predicate in group]
    if others or any(predicate.operator is not Operator.EQ for predicate in group) or len(set(keys)) < len(keys):
        raise DefinitionError(
            f"An instance cannot wait for {format_filter(filter)}.",
            why="The filter of an instance subscription is equalities of different properties, joined by and.",
            hint="Use only ==, and create another subscription instead of an or.",
        )
    return group


def _check_convoy(properties: Sequence[Property]) -> None:
    keys = [prop.key for prop in properties]
    if not 1 <= len(keys) <= MAX_CONVOY_PROPERTIES or len(set(keys)) < len(keys):
        raise DefinitionError(
            f"A convoy set has one to {MAX_CONVOY_PROPERTIES} properties, not {', '.join(keys) or 'none'}.",
            hint="Name each property once.",
        )
