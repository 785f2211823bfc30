"""The claimed files of a receive location as rows, for a query that runs the receive task as a separate function."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from postroom.messagebox.connection import Login
from postroom.messagebox.intake import file_claims
from postroom.messagebox.intake.file_claims import FileClaim
from postroom.messagebox.intake.numbered_interchanges import IntakeRow
from postroom.ports.receive_locations import ReceiveLocation
from postroom.spark.receive.stream_source import StreamSettings, stream_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SCHEMA = "interchange_id string, name string, path string, size long, modified_ns long"


def load_claims(session: SparkSession, login: Login, location: ReceiveLocation) -> DataFrame:
    """Return a streaming data frame of the claimed files."""
    settings = StreamSettings(
        login=login,
        location_id=location.location_id,
        partitions=2,
        max_rows=1000,
        host_id=location.host_id,
    )
    source = stream_source(settings, partial(_to_rows, login), _SCHEMA)
    session.dataSource.register(source)
    return session.readStream.format(source.name()).load()


def read_claims(batch: pa.RecordBatch) -> list[FileClaim]:
    """Return the claims in a batch of their rows."""
    return [
        FileClaim(
            interchange_id=uuid.UUID(row["interchange_id"]),
            name=row["name"],
            path=Path(row["path"]),
            size=row["size"],
            modified_ns=row["modified_ns"],
        )
        for row in batch.to_pylist()
    ]


def _to_rows(login: Login, found: Sequence[IntakeRow]) -> Iterator[pa.RecordBatch]:
    with login.connect("claims") as connection:
        claims = file_claims.read_claims(connection, [row.interchange_id for row in found])
    names = [column.split()[0] for column in _SCHEMA.split(", ")]
    types = (pa.string(), pa.string(), pa.string(), pa.int64(), pa.int64())
    rows = [(str(claim.interchange_id), claim.name, str(claim.path), claim.size, claim.modified_ns) for claim in claims]
    columns = zip(*rows, strict=True) if rows else ((),) * len(names)
    arrays = [pa.array(list(column), kind) for column, kind in zip(columns, types, strict=True)]
    yield pa.RecordBatch.from_arrays(arrays, names=names)
