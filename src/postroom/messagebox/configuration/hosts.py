"""Reads the hosts, and how each service class dequeues."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from postroom.errors import NotAllowed, NotFound, StateError, suggest_names
from postroom.filters.authorisation import ApplicationProperties
from postroom.hops import MAX_HOPS
from postroom.messagebox.connection import Connection, read_value
from postroom.messagebox.statements import statement
from postroom.throttling import Overrides, Throttling, load_overrides, load_throttling


class ServiceClass(StrEnum):
    """The service classes. SPARK_SINKS and PROGRAMS are additions of Postroom."""

    ORCHESTRATIONS = "orchestrations"
    MESSAGING_IN_PROCESS = "messaging_in_process"
    CACHING = "caching"
    MESSAGING_ISOLATED = "messaging_isolated"
    ROUTING_FAILURE_REPORT = "routing_failure_report"
    SPARK_SINKS = "spark_sinks"
    PROGRAMS = "programs"


#: The service classes that hosts dequeue.
DEQUEUED_CLASSES = (
    ServiceClass.MESSAGING_IN_PROCESS,
    ServiceClass.MESSAGING_ISOLATED,
    ServiceClass.ORCHESTRATIONS,
    ServiceClass.CACHING,
)


@dataclass(frozen=True, kw_only=True)
class Dequeuing:
    """The settings of a service class: the polling interval for an empty queue, and the number of dequeue threads."""

    service_class: ServiceClass
    polling_interval: timedelta
    dequeue_threads: int


@dataclass(frozen=True, kw_only=True)
class Host:
    host_id: int
    name: str
    role_name: str
    is_default: bool
    definition: dict[str, Any] = field(default_factory=dict)
    """The stored definition, with what all applications declare. Empty if none has declared the host."""
    stopped: bool = False
    created_at: datetime | None = None
    overrides: Overrides = field(default_factory=Overrides)

    @property
    def trusted(self) -> bool:
        return bool(self.definition.get("trusted"))

    @property
    def isolated(self) -> bool:
        return bool(self.definition.get("isolated"))

    @property
    def max_hops(self) -> int:
        """How many services may pass on what a message was caused by."""
        return int(self.definition.get("max_hops") or MAX_HOPS)

    @property
    def messaging_class(self) -> ServiceClass:
        """The service class of its receive locations and send ports."""
        return ServiceClass.MESSAGING_ISOLATED if self.isolated else ServiceClass.MESSAGING_IN_PROCESS

    @property
    def threads(self) -> int | None:
        """The declared number of dequeue threads of each service class, or None."""
        return self.definition.get("threads")

    @cached_property
    def throttling(self) -> Throttling:
        return load_throttling(self.definition.get("throttling") or {})


def read_hosts(connection: Connection) -> list[Host]:
    rows = connection.cursor(row_factory=dict_row).execute(
        "SELECT id AS host_id, name, role_name, is_default, definition, stopped, created_at,"
        " throttling_overrides AS overrides FROM messagebox.hosts ORDER BY id"
    )
    return [Host(**row | {"overrides": load_overrides(row["overrides"])}) for row in rows]


def read_application_properties(connection: Connection) -> dict[int, ApplicationProperties]:
    """Return the application properties of each host, by host id."""
    values: defaultdict[int, set[tuple[str, str]]] = defaultdict(set)
    for host_id, key, text in connection.execute("SELECT host_id, property_key, value FROM application_properties"):
        values[host_id].add((key, text))
    return {host_id: frozenset(texts) for host_id, texts in values.items()}


def find_host(connection: Connection, name: str) -> Host:
    """Return the host with this name, case-insensitive. Raise NotFound with a list of the hosts."""
    known = read_hosts(connection)
    for host in known:
        if host.name.lower() == name.lower():
            return host
    raise NotFound(
        f"There is no host {name!r}.",
        hint=suggest_names(
            name, (host.name for host in known), "The hosts are", none="none yet; run postroom apply first"
        ),
    )


def get_host(connection: Connection, host_id: int) -> Host:
    """Return the host with this id."""
    return next(host for host in read_hosts(connection) if host.host_id == host_id)


def is_host_stopped(connection: Connection, host_id: int) -> bool:
    """Return True if an operator has stopped the host."""
    return bool(read_value(connection, "SELECT stopped FROM messagebox.hosts WHERE id = %s", host_id))


def check_login_of_host(connection: Connection, host: Host) -> None:
    """Raise NotAllowed unless the login is a login of the host or an administrator."""
    row = connection.execute(
        "SELECT has_function_privilege(format('messagebox.%%I(uuid, bigint[])',"
        " 'complete_messages_' || lower(%s::text)), 'execute'), session_user",
        (host.name,),
    ).fetchone()
    assert row is not None
    allowed, login = row
    if not allowed:
        raise NotAllowed(
            f"The login {login} may not run the host {host.name}.",
            why=f"It is neither a member of the host's role {host.role_name} nor an administrator.",
            hint="Use a --database URL with a login of the host. The owner of the MessageBox grants it: "
            f"GRANT {host.role_name} TO {login}",
        )


def read_dequeuing(connection: Connection, service_class: ServiceClass) -> Dequeuing:
    """Return the settings of a service class (adm_ServiceClass)."""
    row = connection.execute(
        "SELECT polling_interval, dequeue_threads FROM management.service_classes WHERE name = %s",
        (service_class,),
    ).fetchone()
    if row is None:
        raise NotFound(f"There is no service class {service_class}.", hint="Migrate the MessageBox again.")
    polling_interval, dequeue_threads = row
    return Dequeuing(service_class=service_class, polling_interval=polling_interval, dequeue_threads=dequeue_threads)


def read_dequeuing_of_host(connection: Connection, host: Host, service_class: ServiceClass) -> Dequeuing:
    """Return the settings of a service class in the instances of a host, which may have its own number of threads."""
    dequeuing = read_dequeuing(connection, service_class)
    return dequeuing if host.threads is None else replace(dequeuing, dequeue_threads=host.threads)


@dataclass(frozen=True, kw_only=True)
class HostInstanceListing:
    """A host instance. ``dead_since`` is the time when another process found its lock released."""

    host_instance_id: int
    server: str
    pid: int
    started_at: datetime
    dead_since: datetime | None


def count_endpoints(connection: Connection) -> dict[int, tuple[int, int]]:
    """Return the number of receive locations and of send ports of each host that has any, by host id."""
    rows = connection.execute(statement("queries/count_endpoints_of_hosts"))
    return {host_id: (locations, send_ports) for host_id, locations, send_ports in rows}


def read_host_instances(connection: Connection) -> dict[int, list[HostInstanceListing]]:
    """Return the instances of each host, the oldest first, by host id."""
    found: defaultdict[int, list[HostInstanceListing]] = defaultdict(list)
    for host_id, number, server, pid, started_at, dead_since in connection.execute(
        "SELECT host_id, id, server, pid, started_at, dead_since FROM messagebox.host_instances"
        " WHERE kind = 'host' ORDER BY id"
    ):
        found[host_id].append(
            HostInstanceListing(
                host_instance_id=number, server=server, pid=pid, started_at=started_at, dead_since=dead_since
            )
        )
    return found


def count_what_keeps_host(connection: Connection, host_id: int) -> dict[str, int]:
    """Return the number of what belongs to a host. It can be removed if all are 0."""
    return dict(connection.execute(statement("queries/count_uses_of_host"), {"host": host_id}).fetchall())


def set_host_stopped(connection: Connection, host_id: int, *, stopped: bool) -> None:
    """Stop or start a host, and record it in the audit."""
    connection.execute("SELECT set_host_stopped(%s::smallint, %s)", (host_id, stopped))


def store_dequeuing(connection: Connection, dequeuing: Dequeuing) -> None:
    """Store the settings of a service class."""
    connection.execute(
        "UPDATE management.service_classes SET polling_interval = %s, dequeue_threads = %s WHERE name = %s",
        (dequeuing.polling_interval, dequeuing.dequeue_threads, dequeuing.service_class),
    )


def store_host(
    connection: Connection, host_id: int, definition: Mapping[str, Any], properties: ApplicationProperties
) -> None:
    """Store the definition of a host, and its application properties as predicates are compared with them."""
    connection.execute("SELECT store_host_definition(%s::smallint, %s)", (host_id, Jsonb(definition)))
    connection.execute("DELETE FROM application_properties WHERE host_id = %s", (host_id,))
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO application_properties (host_id, property_key, value) VALUES (%s, %s, %s)",
            [(host_id, key, text) for key, text in sorted(properties)],
        )


def get_publishing_host(connection: Connection, name: str | None) -> Host:
    """Return the host with this name, or the default host. A client publishes on behalf of this host."""
    if name is not None:
        return find_host(connection, name)
    for host in read_hosts(connection):
        if host.is_default:
            return host
    raise StateError("The MessageBox has no hosts yet.", hint="Run 'postroom apply APP' first.")


def can_create_hosts(connection: Connection) -> bool:
    """Return True if the login may create hosts."""
    return bool(read_value(connection, "SELECT has_table_privilege('messagebox.hosts', 'INSERT')"))
