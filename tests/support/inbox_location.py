"""Add a receive location whose adapter stores interchanges in the inbox to the MessageBox of a test."""

from __future__ import annotations

from postroom import adapters, pipelines
from postroom.pipelines import ReceivePipeline
from postroom.ports.receive_locations import ReceiveLocation, read_receive_locations
from tests.support.box import PROMOTE, Box


def add_inbox_location(
    box: Box,
    *,
    name: str = "web",
    host: str = "Default",
    pipeline: ReceivePipeline | None = None,
    adapter: adapters.HttpReceive | None = None,
) -> ReceiveLocation:
    """Add an HTTP location of an existing host."""
    box.add_location(pipeline or pipelines.Json(promote=PROMOTE), port=f"{name}In", name=name)
    declared = adapter or adapters.HttpReceive("/orders", port=8080)
    box.set_locations(name, adapter=declared.model_dump(mode="json"), uri="http://127.0.0.1:8080/orders")
    if host != "Default":
        box.move_service(name, box.host(host))
    return next(location for location in read_receive_locations(box.connection) if location.name == name)
