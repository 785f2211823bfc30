"""The inbox of a receive location as a streaming source of Spark. An offset is the number of a row.

Bodies do not pass through here: a row is the id of an interchange, and the task that gets it reads the rest.
"""

# Spark calls the methods by these names.
# ruff: noqa: N802

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from postroom.messagebox import inbox
from postroom.messagebox.connection import Connection
from postroom.messagebox.inbox import Waiting
from postroom.spark.receive.numbered_reader import NumberedReader, RowsPartition

FORMAT = "postroom_inbox"

_SCHEMA = "interchange_id string"
_ARROW = pa.schema([("interchange_id", pa.string())])


class Inbox(DataSource):
    """One row per interchange that was handed over."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return _SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return InboxReader.of(self.options)


class InboxReader(NumberedReader[Waiting]):
    """Rows of the inbox by their numbers."""

    def newest(self, connection: Connection, after: int, most: int | None) -> int:
        return inbox.newest(connection, self._location_id, after, most)

    def between(self, connection: Connection, after: int, last: int) -> Sequence[Waiting]:
        return inbox.between(connection, self._location_id, after, last)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RowsPartition)
        rows = [{"interchange_id": str(row.interchange_id)} for row in partition.rows]
        yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)
