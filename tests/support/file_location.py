"""Add a file receive location to the MessageBox of a test."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from postroom import adapters, pipelines
from postroom.messagebox.connection import Connection
from postroom.messagebox.intake.file_claims import FileClaim, read_claims
from postroom.messagebox.intake.numbered_interchanges import read_numbered
from postroom.pipelines import ReceivePipeline
from postroom.ports.receive_locations import ReceiveLocation, read_receive_locations
from tests.support.box import PROMOTE, Box


def add_file_location(
    box: Box,
    folder: Path,
    *,
    name: str = "drop",
    pattern: str = "*",
    settle: float = 0.0,
    archive: Path | None = None,
    pipeline: ReceivePipeline | None = None,
    route_failures: bool = False,
    order: Literal["name", "time"] | None = None,
    private_folder: Path | None = None,
    trusted_senders: bool = False,
) -> ReceiveLocation:
    """Add a location of the default host that receives files from `folder`."""
    box.add_location(
        pipeline or pipelines.Json(promote=PROMOTE), port=f"{name}In", name=name, route_failures=route_failures
    )
    adapter = adapters.File(
        folder,
        pattern=pattern,
        settle=settle,
        archive=archive,
        order=order,
        private_folder=private_folder,
        trusted_senders=trusted_senders,
    )
    box.set_locations(name, adapter=adapter.model_dump(mode="json"), uri=adapter.address(Path("/")))
    return next(location for location in read_receive_locations(box.connection) if location.name == name)


def read_numbered_claims(connection: Connection, location: ReceiveLocation) -> list[FileClaim]:
    """Return the claims that the stream would receive."""
    rows = read_numbered(connection, location.location_id, 0, 1 << 60)
    return read_claims(connection, [row.interchange_id for row in rows])
