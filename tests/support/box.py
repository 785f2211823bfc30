"""A MessageBox for tests, with functions that add receive locations, send ports and groups."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from postroom import adapters, pipelines
from postroom.agent.direct.direct_agent import DirectAgent
from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.document_batch import ReceiveResult
from postroom.agent.streaming.interchange import Interchange
from postroom.agent.streaming.receiver import Receiver
from postroom.application import (
    ApplicationDefinition,
    BackupTransport,
    CircuitBreaker,
    ReceiveLocationDefinition,
    ReceivePortDefinition,
    Retry,
    Schedule,
    SendPortDefinition,
    SendPortGroupDefinition,
)
from postroom.message import Bytes, Context
from postroom.messagebox.configuration.applications import store_application
from postroom.messagebox.configuration.endpoints import StoredReceivePort, store_receive_port
from postroom.messagebox.configuration.hosts import Host, read_hosts
from postroom.messagebox.configuration.send_port_groups import store_send_port_group
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.migrate import create_host
from postroom.messagebox.subscriptions import deploy_property
from postroom.operations.ports import groups
from postroom.operations.ports import send_ports as ports
from postroom.pipelines import ReceivePipeline
from postroom.ports.receive_locations import (
    ReceiveLocation,
    build_receive_location,
    read_receive_locations,
    store_receive_location,
)
from postroom.ports.send_ports import build_send_port, store_send_port
from postroom.properties import Property
from postroom.system_properties import BTS, SYSTEM_PROPERTIES
from tests.support.contents import Contents

Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)
Priority = Property("Orders.Priority", int)
PROMOTE = {Region: "region", Total: "total", Priority: "priority"}


class Box(Contents):
    """A MessageBox with a host, properties and an application. Its connection is that of the superuser."""

    def __init__(self, url: str, connection: Connection) -> None:
        super().__init__(connection)
        self.url = url
        self._application = self.one("SELECT id FROM applications WHERE name = 't'")

    def host(self, name: str = "Default") -> Host:
        return next(host for host in read_hosts(self.connection) if host.name == name)

    def add_host(self, name: str) -> Host:
        with self.connection.transaction():
            create_host(self.connection, name)
        return self.host(name)

    def add_location(
        self,
        pipeline: ReceivePipeline | None = None,
        *,
        port: str = "OrdersIn",
        name: str = "drop",
        route_failures: bool = False,
    ) -> ReceiveLocation:
        declared = ReceivePortDefinition(name=port, route_failures=route_failures)
        port_id = uuid.uuid4()
        stored = StoredReceivePort(port_id=port_id, name=port, definition=declared.to_stored())
        store_receive_port(self.connection, stored, self._application)
        location = ReceiveLocationDefinition(
            name=name,
            adapter=adapters.File("in"),
            pipeline=pipeline or pipelines.JsonLines(promote=PROMOTE),
            host="Default",
        )
        built = build_receive_location(
            declared,
            location,
            location_id=uuid.uuid4(),
            port_id=port_id,
            host_id=self.host().host_id,
            home=Path(),
        )
        store_receive_location(self.connection, replace(built, uri="file:///in/*.json"))
        return next(location for location in read_receive_locations(self.connection) if location.name == name)

    def add_port(
        self,
        name: str,
        filter: str | None = None,
        *,
        state: str = "started",
        host: str = "Default",
        adapter: dict[str, Any] | None = None,
        retry_count: int = 3,
        retry_seconds: float = 300,
        priority: int = 5,
        route_failures: bool = False,
        service_window: Schedule | None = None,
        backup: BackupTransport | None = None,
        expire_seconds: float | None = None,
        circuit_breaker: CircuitBreaker | None = None,
        ordered: bool = False,
        stop_on_failure: bool = False,
    ) -> None:
        """Add a send port. Its ``adapter`` is stored as it is, and need not be valid. A ``backup`` transport discards
        messages."""
        definition = SendPortDefinition(
            name=name,
            host=host,
            adapter=adapters.Null(),
            retry=Retry(count=retry_count, interval=retry_seconds),
            priority=priority,
            route_failures=route_failures,
            service_window=service_window,
            backup=backup,
            expire_after=None if expire_seconds is None else timedelta(seconds=expire_seconds),
            circuit_breaker=circuit_breaker,
            ordered=ordered,
            stop_on_failure=stop_on_failure,
        )
        host_id = self.host(host).host_id
        port = build_send_port(definition, port_id=uuid.uuid4(), host_id=host_id, home=Path())
        stored = replace(port, uri="null://", backup_uri=None if backup is None else "null://backup")
        stored = stored.replace_settings(filter=filter, adapter=adapter or port.adapter_json)
        store_send_port(self.connection, stored, self._application)
        if state == "started":
            ports.start(self.connection, name)
        elif state == "stopped":
            ports.enlist(self.connection, name)

    def add_group(
        self, name: str, members: Sequence[str], filter: str | None = None, *, state: str = "started"
    ) -> uuid.UUID:
        """Add a send port group and return its id."""
        stored = {**SendPortGroupDefinition(name=name).to_stored(), "filter": filter}
        group_id = uuid.uuid4()
        store_send_port_group(self.connection, stored, id=group_id, application_id=self._application)
        self.connection.execute(
            "INSERT INTO send_port_group_members (group_id, port_id)"
            " SELECT %s, id FROM send_ports WHERE name = ANY (%s)",
            (group_id, list(members)),
        )
        if state == "started":
            groups.start(self.connection, name)
        elif state == "stopped":
            groups.enlist(self.connection, name)
        return group_id

    def move_service(self, name: str, host: Host) -> None:
        """Move a send port or receive location to another host, as a deployment does."""
        for table in ("send_ports", "receive_locations"):
            self.connection.execute(f"UPDATE {table} SET host_id = %s WHERE name = %s", (host.host_id, name))
        self.connection.execute(
            "UPDATE services SET former_host_ids = ARRAY[host_id], host_id = %s WHERE name = %s", (host.host_id, name)
        )

    def agent(self, *, warm: bool = True, connection: Connection | None = None, is_engine: bool = False) -> DirectAgent:
        routing = RoutingTable() if warm else None
        return DirectAgent(connection or self.connection, self.host(), routing, is_engine=is_engine)

    def receive(self, location: ReceiveLocation, *bodies: bytes) -> list[ReceiveResult]:
        """Receive each body as one interchange, with the login of the host."""
        with connect(self.url, user=self.host().role_name) as connection:
            return Receiver(connection, RoutingTable()).receive(location, [interchange(body) for body in bodies])

    def queued(self) -> dict[str, int]:
        """Return the number of rows in the work queues by send port."""
        rows = self.connection.execute(
            "SELECT p.name, count(*) FROM work_queue q JOIN send_ports p ON p.id = q.service_id GROUP BY 1"
        )
        return dict(rows.fetchall())

    def suspended(self) -> list[tuple[str, bool]]:
        """Return the error code of each suspended row, and whether it can be resumed."""
        rows = self.connection.execute("SELECT error_code, resumable FROM suspended_queue ORDER BY seq")
        return [(code, resumable) for code, resumable in rows]


def add_test_objects(connection: Connection) -> None:
    """Create a host, the properties and an application in an empty MessageBox."""
    with connection.transaction():
        create_host(connection, "Default", is_default=True)
        for prop in (*SYSTEM_PROPERTIES.values(), *PROMOTE):
            deploy_property(connection, prop.key, prop.value_type)
        properties = ApplicationDefinition(name="t", properties=tuple(PROMOTE)).to_stored()["properties"]
        store_application(connection, "t", properties=properties, hosts=[])


@contextmanager
def open_box(url: str) -> Iterator[Box]:
    with connect(url) as connection:
        yield Box(url, connection)


def interchange(body: bytes, interchange_id: uuid.UUID | None = None) -> Interchange:
    return Interchange(
        interchange_id=interchange_id or uuid.uuid4(),
        body=Bytes(body),
        context=Context().write(BTS.SourceParty, "test"),
    )
