"""The receive stream: a streaming query that receives the claimed files or the inbox of a location."""

from __future__ import annotations

import shutil
import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.messagebox.connection import Login
from postroom.ports.receive_locations import ReceiveLocation
from postroom.spark.receive.task import TALLY_COLUMNS, TALLY_METRIC, TALLY_SPARK_SCHEMA, SparkReceiveTask
from postroom.spark.worker import GRACE

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: An idle stream costs 22 % of a core at Spark's default trigger, and 6 % at this one.
TRIGGER = "100 milliseconds"

#: Maximum number of interchanges in a batch, so that a backlog is published in steps that can be watched.
MAX_ROWS = 1_000


def start_stream(
    session: SparkSession,
    location: ReceiveLocation,
    *,
    login: Login,
    home: Path,
    trigger: str = TRIGGER,
    paced: bool = True,
    max_rows: int = MAX_ROWS,
    grace: float = GRACE,
) -> StreamingQuery:
    """Start a query that publishes the claimed files or the inbox of a location. With ``paced`` it slows down while too
    many messages wait. A worker is killed if it makes no progress for ``grace`` seconds longer than a call may take.

    Every start uses a new checkpoint, and so reads everything that is there. The MessageBox knows better than a
    checkpoint what is still to be received: a published file claim or row of the inbox is gone or has its receipt.
    So neither a truncated checkpoint nor a restored database can block a location or hide a file.
    """
    from postroom.spark.receive.stream_source import StreamSettings, stream_source
    from postroom.spark.session import without_pandas_warning

    checkpoints = home / ".postroom" / "checkpoints" / str(location.location_id)
    shutil.rmtree(checkpoints, ignore_errors=True)
    checkpoint = (checkpoints / str(uuid.uuid4())).absolute()
    settings = StreamSettings(
        login=login,
        location_id=location.location_id,
        partitions=1 if location.adapter.is_ordered else session.sparkContext.defaultParallelism,
        max_rows=max_rows,
        host_id=location.host_id if paced else None,
    )
    task = SparkReceiveTask(location=location, login=login, home=home.absolute(), paced=paced, grace=grace)
    source = stream_source(settings, task, TALLY_SPARK_SCHEMA)
    with without_pandas_warning():
        session.dataSource.register(source)
        tallies = session.readStream.format(source.name()).load()
        return start_tallied(tallies, location, checkpoint, trigger=trigger)


def start_tallied(
    tallies: DataFrame,
    location: ReceiveLocation,
    checkpoint: Path,
    *,
    trigger: str | None,
    start_batch: Callable[[int, int], None] | None = None,
) -> StreamingQuery:
    """Start a query over the tallies of receive tasks. Without a trigger it ends with what is there now.

    ``start_batch`` is called on the driver before any task of a batch runs, with the number of the batch and of its
    partitions. An error that it raises ends the query."""
    from pyspark.sql import functions

    counted = tallies.observe(TALLY_METRIC, *(functions.sum(name).alias(name) for name in TALLY_COLUMNS))
    written = counted.writeStream
    if start_batch is None:
        written = written.format("noop")
    else:
        written = written.foreachBatch(partial(_start_and_write, start_batch))
    writer = written.queryName(f"{location.name}-{uuid.uuid4()}").option("checkpointLocation", f"file://{checkpoint}")
    return (writer.trigger(availableNow=True) if trigger is None else writer.trigger(processingTime=trigger)).start()


def _start_and_write(start_batch: Callable[[int, int], None], tallies: DataFrame, number: int) -> None:
    # The DataFrame is not planned again, so the tasks have these partitions.
    start_batch(number, tallies._jdf.queryExecution().toRdd().getNumPartitions())
    tallies.write.format("noop").mode("overwrite").save()
