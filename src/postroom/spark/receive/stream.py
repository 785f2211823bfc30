"""The receive stream: claimed files or handed-over interchanges in, messages in the MessageBox, a tally of each out."""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.messagebox.configuration import ReceiveLocation
from postroom.spark.careful import GRACE
from postroom.spark.intake.taking_in import takes_files
from postroom.spark.login import Login

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.streaming.query import StreamingQuery

#: An idle stream costs 22 % of a core at Spark's default trigger, and 6 % at this one.
TRIGGER = "100 milliseconds"

#: Files or interchanges in one batch: so that a backlog is published in steps that can be watched.
MAX_ROWS = 1_000

#: The name under which a query's progress tells how much was received.
TALLY = "tally"
#: What it tells: files, messages published, instances suspended, failures that became error messages, messages that
#: were dropped because nobody known stands for them, and files without any document.
TALLIED = ("files", "published", "suspended", "routed", "dropped", "empty")


def in_words(done: Mapping[str, int]) -> str:
    """What was received, as the log tells it."""
    text = "{files:,} files, {published:,} messages published, {suspended:,} suspended, {routed:,} failures routed"
    return (text + ", {dropped:,} dropped, {empty:,} files empty").format_map(Counter(done))


def start_stream(
    session: SparkSession,
    location: ReceiveLocation,
    *,
    login: Login,
    home: Path,
    trigger: str = TRIGGER,
    once: bool = False,
    max_rows: int = MAX_ROWS,
    grace: float = GRACE,
) -> StreamingQuery:
    """Starts publishing what was taken in for a location; ``once`` ends with what is there now. A worker is ended that
    is silent for ``grace`` seconds longer than the pipeline allows for one call.

    Every start begins a checkpoint of its own and so reads everything that is there. The MessageBox knows better than a
    checkpoint what is still to be done: a claim, or a row of the inbox, that was published is gone or has its receipt.
    So neither a checkpoint that a crash cut short nor a database that was set back can hold up a location or hide a
    file.
    """
    from postroom.spark.receive.receiving_source import receiving
    from postroom.spark.receive.tally import TALLY_SCHEMA
    from postroom.spark.session import without_pandas_warning

    checkpoints = home / ".postroom" / "checkpoints" / str(location.location_id)
    shutil.rmtree(checkpoints, ignore_errors=True)
    source = receiving(location.location_id, *_way_in(location, login, home, paced=not once, grace=grace), TALLY_SCHEMA)
    with without_pandas_warning():
        session.dataSource.register(source)
        reader = (
            session.readStream.format(source.name())
            .option("url", login.url)
            .option("location", str(location.location_id))
            .option("host", location.host_id)
            .option("partitions", 1 if location.is_ordered else session.sparkContext.defaultParallelism)
            .option("max_rows", max_rows)
        )
        if login.user is not None:
            reader = reader.option("user", login.user)
        checkpoint = (checkpoints / str(uuid.uuid4())).absolute()
        return start_tallied(reader.load(), location, checkpoint, trigger=None if once else trigger)


def start_tallied(
    tallies: DataFrame,
    location: ReceiveLocation,
    checkpoint: Path,
    *,
    trigger: str | None,
    begin_batch: Callable[[int, int], None] | None = None,
) -> StreamingQuery:
    """Starts the query that does the work of which these are the tallies; without a trigger it ends with what is there
    now. ``begin_batch`` is called on the driver before any task of a batch runs, with the batch's number and how many
    partitions it has; what it raises ends the query."""
    from pyspark.sql import functions

    counted = tallies.observe(TALLY, *(functions.sum(name).alias(name) for name in TALLIED))
    written = counted.writeStream
    if begin_batch is None:
        written = written.format("noop")
    else:
        written = written.foreachBatch(partial(_begin_and_write, begin_batch))
    writer = written.queryName(f"{location.name}-{uuid.uuid4()}").option("checkpointLocation", f"file://{checkpoint}")
    return (writer.trigger(availableNow=True) if trigger is None else writer.trigger(processingTime=trigger)).start()


def _begin_and_write(begin_batch: Callable[[int, int], None], tallies: DataFrame, number: int) -> None:
    # What comes here is not planned again: these are the partitions that the tasks will have.
    begin_batch(number, tallies._jdf.queryExecution().toRdd().getNumPartitions())
    tallies.write.format("noop").mode("overwrite").save()


def _way_in(
    location: ReceiveLocation, login: Login, home: Path, *, paced: bool, grace: float
) -> tuple[type[DataSource], Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]]:
    """Where the rows of a location come from, and what a task does with them."""
    if takes_files(location):
        from postroom.spark.receive.claims_source import ClaimedFiles
        from postroom.spark.receive.task import ReceiveTask

        return ClaimedFiles, ReceiveTask(login=login, location=location, home=home.absolute(), paced=paced, grace=grace)
    from postroom.spark.receive.inbox_source import Inbox
    from postroom.spark.receive.inbox_task import InboxTask

    return Inbox, InboxTask(login=login, location=location, paced=paced, grace=grace)
