"""A receive location over a stream of rows, at work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroom.spark.bulk.row_stream import start_row_stream
from postroom.spark.receive.running_location import RunningLocation

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class RunningRowStream(RunningLocation):
    """As any other, but that Spark itself knows where the stream was left."""

    def _start_query(self) -> StreamingQuery:
        return start_row_stream(self._session, self.location, login=self._login, home=self._home, trigger=self._trigger)
