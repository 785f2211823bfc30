"""Add a receive location with a Spark reader to the MessageBox of a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from postroom import adapters, pipelines
from postroom.application.define import complete_rows
from postroom.ports.receive_locations import ReceiveLocation, read_receive_locations
from tests.support.box import PROMOTE, Box

SCHEMA = "id bigint, region string, total decimal(12,2), priority int"


def add_bulk_location(
    box: Box,
    folder: Path | None,
    *,
    format: str = "csv",
    name: str = "bulk",
    pipeline: pipelines.Rows | None = None,
    schema: str | None = SCHEMA,
    **settings: Any,
) -> ReceiveLocation:
    """Add a location of the default host that reads rows of the files in `folder`."""
    reader = adapters.SparkReader(format, folder, schema=schema, settle=0.0, **settings)
    assert reader.problems() == []
    rows = complete_rows(pipeline or pipelines.Rows(promote=PROMOTE), reader)
    box.add_location(rows, port=f"{name}In", name=name)
    box.set_locations(name, adapter=reader.model_dump(mode="json"), uri=reader.address(Path("/")))
    return next(location for location in read_receive_locations(box.connection) if location.name == name)
