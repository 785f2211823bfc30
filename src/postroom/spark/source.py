"""The claimed files of a receive location as a streaming source of Spark.

An offset is the number of a claim. What was claimed, and what is still to be published, is in the MessageBox; Spark's
checkpoint only says which claims this run of the query has handed out.

Spark ends Python workers that had nothing to do for a minute, and the next file would wait seconds for new ones. So an
idle stream runs an empty batch now and then, and one at its start; the offset's second number counts these.
"""

# Spark calls the methods by these names.
# ruff: noqa: N802

from __future__ import annotations

import heapq
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import psycopg
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from postroom.errors import Unavailable
from postroom.messagebox.connection import Connection
from postroom.spark import claim as claims
from postroom.spark.claim import Claim
from postroom.spark.login import Login

T = TypeVar("T")

FORMAT = "postroom_claims"

_WARM_SECONDS = 40.0

#: What a file costs beside its bytes, in bytes, so that many small ones spread as well as a few large ones.
_FILE_COST = 16_384

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
    """One row per claimed file.

    Options: ``url`` and ``user`` of the MessageBox, ``location`` (a receive location's id), ``partitions`` (at most so
    many tasks a batch), ``max_files`` (at most so many files a batch).
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return _SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = self.options
        return ClaimedFilesReader(
            login=Login(url=options["url"], user=options.get("user")),
            location_id=uuid.UUID(options["location"]),
            partitions=int(options["partitions"]),
            max_files=int(options["max_files"]),
        )


class FilesPartition(InputPartition):
    """The files of one task."""

    def __init__(self, files: Sequence[Claim]) -> None:
        super().__init__(None)
        self.files = tuple(files)


class ClaimedFilesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Runs in a process of its own beside the driver, where it asks the MessageBox, and in the tasks."""

    def __init__(self, *, login: Login, location_id: uuid.UUID, partitions: int, max_files: int) -> None:
        self._login = login
        self._location_id = location_id
        self._partitions = partitions
        self._max_files = max_files
        self._connection: Connection | None = None
        self._target: int | None = None
        self._warm_at = 0.0

    def initialOffset(self) -> dict[str, Any]:
        return {"number": 0, "warm_ups": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(self._max_files)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ask(lambda connection: claims.newest(connection, self._location_id, 0, None))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        after = int(start["number"])
        most = None if isinstance(limit, ReadAllAvailable) else self._max_files
        try:
            number = self._ask(lambda connection: claims.newest(connection, self._location_id, after, most))
        except (psycopg.OperationalError, Unavailable):
            if self._target is not None:
                raise
            # The MessageBox is away, so nothing can be claimed or published. The stream asks again in a moment.
            return start
        if self._target is not None:
            return {**start, "number": max(after, min(number, self._target))}
        if number == after and time.monotonic() < self._warm_at:
            return start
        self._warm_at = time.monotonic() + _WARM_SECONDS
        return {"number": number, "warm_ups": start["warm_ups"] + (number == after)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        after, last = int(start["number"]), int(end["number"])
        found = self._ask(lambda connection: claims.between(connection, self._location_id, after, last))
        shares = balanced(found, self._partitions)
        if not shares and start["warm_ups"] != end["warm_ups"]:
            shares = [[]] * self._partitions
        return [FilesPartition(files) for files in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FilesPartition)
        rows = [
            {
                "interchange_id": str(claim.interchange_id),
                "name": claim.name,
                "path": str(claim.path),
                "size": claim.size,
                "modified_ns": claim.modified_ns,
            }
            for claim in partition.files
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, question: Callable[[Connection], T]) -> T:
        """Asks the MessageBox, once more over a new connection if the one that was kept has died."""
        if self._connection is not None:
            try:
                return question(self._connection)
            except psycopg.OperationalError:
                self.stop()
        self._connection = self._login.connect("stream")
        return question(self._connection)


def balanced(files: Sequence[Claim], parts: int) -> list[list[Claim]]:
    """The files in at most ``parts`` shares of about equal cost, each in the order of the claims; no share is empty."""
    shares: list[list[int]] = [[] for _ in range(min(parts, len(files)))]
    loads = [(0, number) for number in range(len(shares))]
    # The largest first, each to whoever has the least: never more than a third worse than the best there is.
    for index in sorted(range(len(files)), key=lambda index: -files[index].size):
        load, number = heapq.heappop(loads)
        shares[number].append(index)
        heapq.heappush(loads, (load + files[index].size + _FILE_COST, number))
    return [[files[index] for index in sorted(share)] for share in shares]
