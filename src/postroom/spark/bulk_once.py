"""What a bulk location has claimed, once and to its end: `postroom pipeline run --once`."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.errors import StateError, Unavailable
from postroom.messagebox.configuration import ReceiveLocation
from postroom.spark.bulk_files import BulkFiles
from postroom.spark.bulk_progress import BulkMeter, BulkProgress
from postroom.spark.job_failure import reason_of
from postroom.spark.login import Login

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

#: Told of progress, about twice a second.
Watcher = Callable[[BulkProgress], None]


def receive_once(
    session: SparkSession,
    location: ReceiveLocation,
    *,
    login: Login,
    home: Path,
    stopping: threading.Event,
    watcher: Watcher | None = None,
) -> Counter[str]:
    """Publishes all that is claimed; what it COUNTED. The caller holds the location's lock.

    Raises Unavailable if it cannot go on, StateError if a file has too many bad rows."""
    files = BulkFiles(session, location, login=login, home=home)
    errors: list[Exception] = []

    def work() -> None:
        try:
            with login.connect("bulk") as connection:
                while not stopping.is_set() and files.receive(connection):
                    pass
        except Exception as error:
            errors.append(error)

    meter = BulkMeter(location.name, location.location_id)
    thread = threading.Thread(target=work, name=f"jobs of {location.name}", daemon=True)
    with login.connect("progress") as connection:
        thread.start()
        while thread.is_alive():
            if stopping.is_set():
                with suppress(Exception):
                    files.cancel()
            elif watcher is not None:
                watcher(meter.look(connection, time.monotonic()))
            thread.join(0.5)
        if watcher is not None:
            watcher(meter.look(connection, time.monotonic()))
    if errors and not stopping.is_set():
        raise Unavailable(f"{location.name} could not be received.", why=reason_of(errors[0])) from errors[0]
    if files.stopped_by:
        raise StateError(
            f"{location.name} has stopped: {files.stopped_by}.",
            hint="Raise the limit and apply the application again, or take the file away.",
        )
    return files.counts
