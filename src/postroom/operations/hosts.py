"""List, add, remove, start and stop hosts. Change how hosts dequeue."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from postroom.adapters.url_logins import HIDDEN
from postroom.application.definition import MAX_DEQUEUE_THREADS
from postroom.application.handler import list_default_handlers
from postroom.errors import BadValue, StateError, find_named
from postroom.filters.authorisation import NO_APPLICATION_PROPERTIES, ApplicationProperties
from postroom.messagebox.audit import record_action
from postroom.messagebox.configuration.endpoints import count_uses_of_handlers
from postroom.messagebox.configuration.hosts import (
    DEQUEUED_CLASSES,
    Dequeuing,
    HostInstanceListing,
    check_login_of_host,
    count_endpoints,
    count_what_keeps_host,
    find_host,
    read_application_properties,
    read_dequeuing,
    read_host_instances,
    read_hosts,
    set_host_stopped,
    store_dequeuing,
)
from postroom.messagebox.configuration.properties import read_sensitive_keys
from postroom.messagebox.connection import Connection, connect, operator_transaction
from postroom.messagebox.coordination.running_processes import change_routing
from postroom.messagebox.instances import count_queues as count_queues
from postroom.messagebox.migrate import create_host, remove_host
from postroom.operations.records import extend, to_row
from postroom.ports.handlers import get_declared_handlers
from postroom.properties import dotted_name, split_key

_MAX_POLLING_INTERVAL = timedelta(seconds=60)


@dataclass(frozen=True, kw_only=True)
class HostProperty:
    """An application property of a host. The value is the text that predicates of messages are compared with."""

    property: str
    value: str

    def __str__(self) -> str:
        return f"{self.property} = {self.value!r}"


@dataclass(frozen=True, kw_only=True)
class HostListing:
    """A host with the number of its instances, locations and send ports."""

    name: str
    is_default: bool
    trusted: bool
    """True if the host is trusted to name the originator of a message."""
    isolated: bool
    """True if it only receives, by HTTP or with adapters that it polls."""
    stopped: bool
    """Has an operator stopped it? Its instances neither receive nor send."""
    role_name: str
    created_at: datetime | None
    threads: int | None
    """The number of dequeue threads of each service class in an instance. None: the number of the service class."""
    running_instances: int
    locations: int
    send_ports: int
    properties: tuple[HostProperty, ...] = ()
    """The application properties of the host. Values of sensitive properties are hidden."""


@dataclass(frozen=True, kw_only=True)
class HostDetails(HostListing):
    """A host with its instances and the number of messages in its queues, by their state."""

    instances: Sequence[HostInstanceListing]
    queues: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class ServiceClassListing:
    """How hosts dequeue the messages of a service class."""

    name: str
    polling_interval_seconds: float
    """How often a host looks into an empty queue."""
    dequeue_threads: int


def list_hosts(connection: Connection) -> list[HostListing]:
    """Return every host, sorted by name."""
    shown = read_application_properties(connection)
    hidden = read_sensitive_keys(connection)
    endpoints = count_endpoints(connection)
    instances = read_host_instances(connection)
    return [
        HostListing(
            name=host.name,
            is_default=host.is_default,
            trusted=host.trusted,
            isolated=host.isolated,
            stopped=host.stopped,
            threads=host.threads,
            role_name=host.role_name,
            created_at=host.created_at,
            running_instances=sum(one.dead_since is None for one in instances[host.host_id]),
            locations=locations,
            send_ports=send_ports,
            properties=tuple(_list_properties(shown.get(host.host_id, NO_APPLICATION_PROPERTIES), hidden)),
        )
        for host in sorted(read_hosts(connection), key=lambda host: host.name)
        for locations, send_ports in [endpoints.get(host.host_id, (0, 0))]
    ]


def _list_properties(shown: ApplicationProperties, hidden: Collection[str]) -> Iterator[HostProperty]:
    for key, text in sorted(shown):
        yield HostProperty(property=dotted_name(*split_key(key)), value=HIDDEN if key in hidden else text)


def get_host_details(connection: Connection, name: str) -> HostDetails:
    """Return a host. Raise NotFound if there is none with this name."""
    instances = read_host_instances(connection)[find_host(connection, name).host_id]
    (host,) = (host for host in list_hosts(connection) if host.name.lower() == name.lower())
    queues = {count.state.value: count.count for count in count_queues(connection) if count.host == host.name}
    return extend(host, HostDetails, instances=instances, queues=queues)


def check_host_to_run(url: str, name: str) -> str:
    """Return the name of a host as it is stored. Raise NotFound if there is none, and NotAllowed if the login may not
    run it."""
    with connect(url) as connection:
        host = find_host(connection, name)
        check_login_of_host(connection, host)
    return host.name


def add_host(connection: Connection, name: str) -> None:
    """Create a host. Applications that name it in ``app.host`` use it."""

    def work(connection: Connection) -> None:
        change_routing(connection)
        if any(host.name.lower() == name.lower() for host in read_hosts(connection)):
            raise StateError(f"There is a host {name!r} already.", hint="List the hosts: postroom host list")
        create_host(connection, name)
        record_action(connection, "host.add", name)

    operator_transaction(connection, work)


def delete_host(connection: Connection, name: str) -> None:
    """Remove a host. Raise StateError with what still belongs to it."""

    def work(connection: Connection) -> None:
        change_routing(connection)
        host = find_host(connection, name)
        if host.is_default:
            raise StateError(f"{host.name} is the default host and cannot be removed.")
        uses = [
            f"{count} {what}{'s' if count > 1 else ''}"
            for what, count in count_what_keeps_host(connection, host.host_id).items()
            if count
        ]
        if uses:
            raise StateError(
                f"The host {host.name} cannot be removed: it has {', '.join(uses)}.",
                hint="Move or remove what belongs to it, stop its processes, and run the command again.",
            )
        remove_host(connection, host.host_id, host.name, host.role_name)
        record_action(connection, "host.remove", host.name)

    operator_transaction(connection, work)


def set_stopped(connection: Connection, name: str, *, stopped: bool) -> None:
    """Stop or start a host: its host instances and its pipelines, also when they start later."""

    def work(connection: Connection) -> None:
        host = find_host(connection, name)
        state = "stopped" if stopped else "started"
        if host.stopped is stopped:
            raise StateError(f"The host {host.name} is already {state}.", hint="There is nothing to do.")
        set_host_stopped(connection, host.host_id, stopped=stopped)

    operator_transaction(connection, work)


@dataclass(frozen=True, kw_only=True)
class HandlerListing:
    """A handler: an adapter that a host runs in one direction. The watermarks are of send handlers."""

    host: str
    adapter: str
    direction: str
    declared: bool
    """False if the host has it by default, because no application declares the handlers of the host."""
    used_by: int
    """The number of receive locations or transports of send ports."""
    high_watermark: int | None
    low_watermark: int | None


def list_handlers(connection: Connection, host_name: str | None = None) -> list[HandlerListing]:
    """Return the handlers of one host or of all hosts, sorted by host, adapter and direction."""
    hosts = read_hosts(connection) if host_name is None else [find_host(connection, host_name)]
    uses = count_uses_of_handlers(connection)
    return [
        HandlerListing(
            host=host.name,
            adapter=handler.adapter,
            direction=handler.direction,
            declared=declared is not None,
            used_by=uses.get((host.host_id, *handler.key), 0),
            high_watermark=handler.high_watermark if handler.direction == "send" else None,
            low_watermark=handler.low_watermark if handler.direction == "send" else None,
        )
        for host in sorted(hosts, key=lambda host: host.name)
        for declared in [get_declared_handlers(host)]
        for handler in sorted(declared or list_default_handlers(isolated=host.isolated), key=lambda each: each.key)
    ]


def list_service_classes(connection: Connection) -> list[ServiceClassListing]:
    """Return the service classes that hosts dequeue, with their settings."""
    return [_describe_dequeuing(read_dequeuing(connection, service_class)) for service_class in DEQUEUED_CLASSES]


def set_service_class(
    connection: Connection,
    name: str,
    *,
    polling_interval: timedelta | None = None,
    dequeue_threads: int | None = None,
) -> ServiceClassListing:
    """Change the settings of a service class for all hosts. Running hosts take the change within a second. None leaves
    a setting as it is."""
    by_name = {service_class.value: service_class for service_class in DEQUEUED_CLASSES}
    service_class = find_named(by_name, name, "service class")
    if polling_interval is not None and not timedelta() < polling_interval <= _MAX_POLLING_INTERVAL:
        raise BadValue("A polling interval is more than 0 and at most 60 seconds.")
    if dequeue_threads is not None and not 1 <= dequeue_threads <= MAX_DEQUEUE_THREADS:
        raise BadValue(f"A service class has 1 to {MAX_DEQUEUE_THREADS} dequeue threads.")

    def work(connection: Connection) -> ServiceClassListing:
        change_routing(connection)
        known = read_dequeuing(connection, service_class)
        changed = Dequeuing(
            service_class=known.service_class,
            polling_interval=polling_interval or known.polling_interval,
            dequeue_threads=dequeue_threads or known.dequeue_threads,
        )
        store_dequeuing(connection, changed)
        after = _describe_dequeuing(changed)
        old, new = to_row(_describe_dequeuing(known)), to_row(after)
        del old["name"], new["name"]
        record_action(connection, "service-class.set", name, before=old, after=new)
        return after

    return operator_transaction(connection, work)


def _describe_dequeuing(dequeuing: Dequeuing) -> ServiceClassListing:
    return ServiceClassListing(
        name=dequeuing.service_class,
        polling_interval_seconds=dequeuing.polling_interval.total_seconds(),
        dequeue_threads=dequeuing.dequeue_threads,
    )
