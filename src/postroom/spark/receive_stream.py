"""The receive stream: claimed files in, messages in the MessageBox, a tally per file out."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.messagebox.configuration import ReceiveLocation
from postroom.spark.login import Login

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: An idle stream costs 22 % of a core at Spark's default trigger, and 6 % at this one.
TRIGGER = "100 milliseconds"

#: So that a backlog is published in steps that can be watched.
MAX_FILES = 1_000

#: The name under which a query's progress tells how much was received.
TALLY = "tally"
#: What it tells: files, messages published, instances suspended, failures that became error messages, and files without
#: any document.
TALLIED = ("files", "published", "suspended", "routed", "empty")


def start_stream(
    session: SparkSession,
    location: ReceiveLocation,
    *,
    login: Login,
    home: Path,
    trigger: str = TRIGGER,
    once: bool = False,
    max_files: int = MAX_FILES,
) -> StreamingQuery:
    """Starts publishing what is claimed for a location; ``once`` ends with what is claimed now.

    Every start begins a checkpoint of its own and so reads all claims that are there. The MessageBox knows better than
    a checkpoint what is still to be done: a claim that was published is gone or has its receipt. So neither a
    checkpoint that a crash cut short nor a database that was set back can hold up a location or hide a file.
    """
    from pyspark.sql import functions

    from postroom.spark.receive_task import TALLY_SCHEMA, ReceiveTask
    from postroom.spark.session import without_pandas_warning
    from postroom.spark.source import FORMAT, ClaimedFiles

    checkpoints = home / ".postroom" / "checkpoints" / str(location.location_id)
    shutil.rmtree(checkpoints, ignore_errors=True)
    task = ReceiveTask(login=login, location=location, home=home.absolute())
    with without_pandas_warning():
        session.dataSource.register(ClaimedFiles)
        reader = (
            session.readStream.format(FORMAT)
            .option("url", login.url)
            .option("location", str(location.location_id))
            .option("partitions", session.sparkContext.defaultParallelism)
            .option("max_files", max_files)
        )
        if login.user is not None:
            reader = reader.option("user", login.user)
        tallies = (
            reader.load()
            .mapInArrow(task, TALLY_SCHEMA)
            .observe(
                TALLY,
                functions.count("*").alias("files"),
                *(functions.sum(name).alias(name) for name in TALLIED[1:]),
            )
        )
        writer = (
            tallies.writeStream.format("noop")
            .queryName(f"{location.name}-{uuid.uuid4()}")
            .option("checkpointLocation", str((checkpoints / str(uuid.uuid4())).absolute()))
        )
        return (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=trigger)).start()
