"""The claimed files of a receive location as a streaming source of Spark. An offset is the number of a claim."""

# Spark calls the methods by these names.
# ruff: noqa: N802

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from postroom.messagebox.connection import Connection
from postroom.spark.intake import claim as claims
from postroom.spark.intake.claim import Claim
from postroom.spark.receive.numbered_reader import NumberedReader, RowsPartition

FORMAT = "postroom_claims"

_SCHEMA = "interchange_id string, name string, path string, size long, modified_ns long"
_ARROW = pa.schema(
    [
        ("interchange_id", pa.string()),
        ("name", pa.string()),
        ("path", pa.string()),
        ("size", pa.int64()),
        ("modified_ns", pa.int64()),
    ]
)


class ClaimedFiles(DataSource):
    """One row per claimed file."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return _SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ClaimedFilesReader.of(self.options)


class ClaimedFilesReader(NumberedReader[Claim]):
    """Claims by their numbers."""

    def newest(self, connection: Connection, after: int, most: int | None) -> int:
        return claims.newest(connection, self._location_id, after, most)

    def between(self, connection: Connection, after: int, last: int) -> Sequence[Claim]:
        return claims.between(connection, self._location_id, after, last)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RowsPartition)
        rows = [
            {
                "interchange_id": str(claim.interchange_id),
                "name": claim.name,
                "path": str(claim.path),
                "size": claim.size,
                "modified_ns": claim.modified_ns,
            }
            for claim in partition.rows
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)
