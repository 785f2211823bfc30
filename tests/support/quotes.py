"""A two-way receive location and the send port that answers its requests."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from postroom import maps, pipelines
from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.interchange import Interchange
from postroom.hosts import HostInstance
from postroom.maps.port_maps import PortMaps
from postroom.message import Bytes
from postroom.messagebox.connection import Connection
from postroom.pipelines import ReceivePipeline
from postroom.two_way.callers import Caller, MissingResponse, RequestPublisher
from tests.integration.hosts.conftest import StartHost
from tests.support.box import PROMOTE, Box
from tests.support.two_way import AnsweringAdapter, make_location_two_way, make_two_way
from tests.support.waiting import PATIENCE

EU = b'{"region": "EU"}'
PRICING = "Orders.Region == 'EU' and BTS.ReceivePortName == 'Quotes'"


class Quotes:
    """A two-way receive location, and the two-way send port Pricing, which answers its requests."""

    def __init__(self, box: Box, start_host: StartHost, connection: Connection) -> None:
        self.box = box
        self.location = make_location_two_way(box, box.add_location(pipelines.Json(promote=PROMOTE), port="Quotes"))
        self._start_host = start_host
        self._connection = connection
        self._publishers: list[RequestPublisher] = []

    def start(
        self, adapter: AnsweringAdapter | None = None, pipeline: ReceivePipeline | None = None, **settings: Any
    ) -> HostInstance:
        """Add the send port with these settings, and start a host instance."""
        self.box.add_port("Pricing", PRICING, **settings)
        make_two_way(self.box, "Pricing", pipeline or pipelines.Json(promote=PROMOTE))
        return self.start_host(adapter)

    def start_host(self, adapter: AnsweringAdapter | None = None) -> HostInstance:
        instance = self._start_host(adapter or AnsweringAdapter())
        self._publishers.append(
            RequestPublisher(
                host=self.box.host(),
                host_instance=instance.host_instance,
                callers=instance.callers,
                routing=RoutingTable(),
            )
        )
        return instance

    def ask(
        self,
        body: bytes = EU,
        *,
        key: uuid.UUID | None = None,
        digest: bytes = b"d",
        timeout: float = PATIENCE,
        at: int = 0,
        connection: Connection | None = None,
    ) -> Caller:
        """Publish a request at one of the host instances. ``key`` is the interchange of an idempotency key."""
        return self._publishers[at].publish(
            connection or self._connection,
            self.location,
            Interchange(interchange_id=key or uuid.uuid4(), body=Bytes(body)),
            timeout=timeout,
            digest=None if key is None else digest,
        )

    def map_response(self, stylesheet: str, folder: Path) -> None:
        """Let the receive port map its responses with an XSLT template."""
        (folder / "price.xsl").write_text(
            '<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">'
            f'<xsl:output omit-xml-declaration="yes"/>{stylesheet}</xsl:stylesheet>'
        )
        packed = PortMaps.pack([maps.Xslt("price.xsl", source="price", target="answer")], folder)
        port = {**self.location.port, "response_maps": packed.model_dump(mode="json")}
        self.location = replace(self.location, port=port)

    def count_waiting(self) -> int:
        waiting = "SELECT count(*) FROM subscriptions WHERE instance_id IS NOT NULL AND removed_at IS NULL"
        return int(self.box.one(waiting))


def get_holders(box: Box) -> list[uuid.UUID]:
    """Return the instances that wait at host instances."""
    waiting = "SELECT instance_id FROM subscriptions WHERE for_host_instance IS NOT NULL AND removed_at IS NULL"
    return [instance_id for (instance_id,) in box.connection.execute(waiting)]


def declare_dead(box: Box) -> None:
    """Declare all host instances dead, as if they were cut off from the MessageBox."""
    box.connection.execute("DELETE FROM host_instances")
    box.one("SELECT dead_processes_cleanup('0 seconds')")
    end_sessions(box)


def end_sessions(box: Box) -> None:
    """End the sessions that hold the locks of host instances, so that these register again."""
    box.connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND classid = 7002"
    )


def read(caller: Caller) -> bytes:
    answer = caller.future.result(PATIENCE)
    assert answer.missing is None
    assert answer.body is not None
    return b"".join(answer.body.chunks())


def read_reason(caller: Caller) -> MissingResponse | None:
    return caller.future.result(PATIENCE).missing
