"""The MessageBox of the benchmarks: an embedded server with default settings and 1,000 subscriptions."""

from __future__ import annotations

import random
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from psycopg.types.json import Jsonb

from postroom import Throttling, pipelines
from postroom.adapters import File
from postroom.adapters.contract import ReceiveDefinition, SendDefinition
from postroom.application import ReceiveLocationDefinition, ReceivePortDefinition, SendPortDefinition
from postroom.filters.authorisation import NO_APPLICATION_PROPERTIES
from postroom.filters.expression import Filter
from postroom.messagebox.configuration.hosts import Host, ServiceClass, read_hosts, store_host
from postroom.messagebox.configuration.services import ServiceState, store_state
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.embedded import EmbeddedServer
from postroom.messagebox.migrate import create_host, migrate
from postroom.messagebox.subscriptions import ServiceSubscriptions, SubscribingService, deploy_property
from postroom.ports.receive_locations import (
    ReceiveLocation,
    build_receive_location,
    read_receive_locations,
    store_receive_location,
)
from postroom.ports.send_ports import build_send_port, store_send_port
from postroom.properties import Property
from postroom.system_properties import SYSTEM_PROPERTIES

Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)
Priority = Property("Orders.Priority", int)
ORDERS = {Region: "region", Total: "total", Priority: "priority"}
SUBSCRIPTIONS = 1_000
REGIONS = 400  # 1,000 subscriptions over 400 regions: 2.5 matches a message


class MeasuredBox:
    """A MessageBox with subscriptions by region and one receive location, by default of JSON lines."""

    def __init__(
        self,
        url: str,
        home: Path,
        *,
        promote: Mapping[Property, str],
        subscriptions: int,
        adapter: ReceiveDefinition | None = None,
        pipeline: pipelines.ReceivePipeline | None = None,
    ) -> None:
        self.url = url
        self.home = home
        self.connection: Connection = connect(url)
        with self.connection.transaction():
            create_host(self.connection, "Default", is_default=True)
            # No throttling, because nothing is delivered while the lanes are measured.
            throttling = Throttling(messages=0).model_dump()
            store_host(self.connection, self.host.host_id, {"throttling": throttling}, NO_APPLICATION_PROPERTIES)
            for prop in (*SYSTEM_PROPERTIES.values(), *promote):
                deploy_property(self.connection, prop.key, prop.value_type)
            self._add_location(
                adapter or File("in", pattern="*.jsonl", settle=0.05), pipeline or pipelines.JsonLines(promote=promote)
            )
            for number in range(subscriptions):
                self.subscribe(number, Region == f"R{number % REGIONS}")

    @property
    def host(self) -> Host:
        return read_hosts(self.connection)[0]

    @property
    def location(self) -> ReceiveLocation:
        return read_receive_locations(self.connection)[0]

    def _add_location(self, adapter: ReceiveDefinition, pipeline: pipelines.ReceivePipeline) -> None:
        (self.home / "in").mkdir(parents=True, exist_ok=True)
        application = self.one("INSERT INTO applications (name) VALUES ('bench') RETURNING id")
        declared = ReceivePortDefinition(name="In")
        port = self.one(
            "INSERT INTO receive_ports (application_id, definition) VALUES (%s, %s) RETURNING id",
            application,
            Jsonb(declared.to_stored()),
        )
        location = build_receive_location(
            declared,
            ReceiveLocationDefinition(name="in", adapter=adapter, pipeline=pipeline, host=self.host.name),
            location_id=uuid.uuid4(),
            port_id=uuid.UUID(str(port)),
            host_id=self.host.host_id,
            home=self.home,
        )
        store_receive_location(self.connection, replace(location, uri="file:///in/*.jsonl"))

    def add_send_port(self, name: str, adapter: SendDefinition, filter: Filter | None = None) -> uuid.UUID:
        """Add a started send port, with a subscription if it has a filter."""
        with self.connection.transaction():
            application_id = self.one("SELECT id FROM applications")
            assert isinstance(application_id, uuid.UUID)
            definition = SendPortDefinition(name=name, host=self.host.name, adapter=adapter)
            port_id = uuid.uuid4()
            port = build_send_port(definition, port_id=port_id, host_id=self.host.host_id, home=self.home)
            store_send_port(self.connection, port, application_id)
            store_state(self.connection, port_id, ServiceState.STARTED)
            if filter is not None:
                self._subscribe(port_id, name, filter)
        return port_id

    def make_two_way(self, port: uuid.UUID) -> None:
        """Let the receive location wait for responses, and let this send port publish them."""
        received = {"two_way": True, "receive_pipeline": pipelines.PassThrough().model_dump(mode="json")}
        self.connection.execute("UPDATE receive_ports SET definition = definition || '{\"two_way\": true}'")
        update = "UPDATE send_ports SET definition = definition || %s WHERE id = %s"
        self.connection.execute(update, (Jsonb(received), port))

    def subscribe(self, number: int, filter: Filter) -> None:
        """Add a started subscription."""
        self._subscribe(uuid.uuid4(), f"port {number}", filter)

    def _subscribe(self, service_id: uuid.UUID, name: str, filter: Filter) -> None:
        subscriptions = ServiceSubscriptions(self.host, ServiceClass.MESSAGING_IN_PROCESS)
        service = SubscribingService(service_id=service_id, name=name)
        subscription = subscriptions.activate(self.connection, service, filter)
        self.connection.execute("SELECT set_subscription_state(%s, 'started')", (subscription,))

    def one(self, query: str, *parameters: object) -> object:
        row = self.connection.execute(query, parameters).fetchone()
        return None if row is None else row[0]

    def empty(self) -> None:
        """Delete all messages and keep the subscriptions."""
        delete_messages(self.connection)

    def close(self) -> None:
        self.connection.close()


@contextmanager
def measured_box(
    *,
    promote: Mapping[Property, str] = ORDERS,
    subscriptions: int = SUBSCRIPTIONS,
    adapter: ReceiveDefinition | None = None,
    pipeline: pipelines.ReceivePipeline | None = None,
) -> Iterator[MeasuredBox]:
    """Yield a new MessageBox on a new server, which is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="postroom-bench-") as folder:
        home = Path(folder)
        home.chmod(0o755)  # if started by root, the server runs as another account
        with EmbeddedServer(home / ".postroom" / "postgres") as server:
            migrate(server.url())
            box = MeasuredBox(
                server.url(), home, promote=promote, subscriptions=subscriptions, adapter=adapter, pipeline=pipeline
            )
            try:
                yield box
            finally:
                box.close()


def delete_messages(connection: Connection) -> None:
    """Delete all messages, and write the checkpoint that this causes."""
    connection.execute(
        "TRUNCATE spool, parts, fragments, work_queue, suspended_queue, scheduled_queue, message_ref_count_log_1,"
        " message_ref_count_log_2, part_ref_count_log_1, part_ref_count_log_2, message_ref_count_log_totals,"
        " part_ref_count_log_totals, message_zero_sum, part_zero_sum, receipts, stored_responses,"
        " file_claims, splits"
    )
    connection.execute("CHECKPOINT")


def json_lines(count: int, *, seed: int = 7) -> list[bytes]:
    """Return orders of about 1 KB, each in one line."""
    rng = random.Random(seed)
    return [
        pad_json(
            f'{{"region":"R{rng.randrange(REGIONS)}","total":{rng.randrange(10**7) / 100},'
            f'"priority":{rng.randrange(9)},"number":{number}'
        )
        for number in range(count)
    ]


def pad_json(start: str, *, size: int = 1_000) -> bytes:
    """Return a JSON object that starts with ``start`` and is padded to ``size`` bytes."""
    head = f'{start},"note":"'
    return f'{head}{"x" * (size - len(head) - 2)}"}}'.encode()
