"""Receive the claimed files of a bulk location and return: `postroom pipeline run --once`."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from postroom.errors import StateError, Unavailable
from postroom.messagebox.connection import Login
from postroom.spark.bulk.bulk_files import BulkFiles
from postroom.spark.bulk.progress import BulkMeter, BulkProgress
from postroom.spark.error_reasons import format_reason

_log = logging.getLogger(__name__)

_CHECK_SECONDS, _LOG_SECONDS = 0.5, 10.0

#: A callback that gets the progress, about twice a second.
Watcher = Callable[[BulkProgress], None]


def receive_once(
    files: BulkFiles,
    *,
    login: Login,
    stopping: threading.Event,
    watcher: Watcher | None = None,
    reporter: Watcher | None = None,
    meter: BulkMeter | None = None,
) -> Counter[str]:
    """Publish all claimed files. Return the counts. The caller holds the lock of the location.

    ``meter`` continues the progress of an earlier round. ``watcher`` gets the progress, which is logged otherwise.
    ``reporter`` gets it, too. Raise Unavailable if a job fails, and StateError if a file has too many bad rows."""
    location = files.location
    errors: list[Exception] = []

    def work() -> None:
        try:
            with login.connect("bulk") as connection:
                while not stopping.is_set() and files.receive(connection):
                    pass
        except Exception as error:
            errors.append(error)

    watchers = [watcher or _LogProgress(), *([reporter] if reporter else [])]

    def report(progress: BulkProgress) -> None:
        for receive_progress in watchers:
            receive_progress(progress)

    meter = meter or BulkMeter(location.name, location.location_id)
    thread = threading.Thread(target=work, name=f"jobs of {location.name}", daemon=True)
    with login.connect("progress") as connection:
        thread.start()
        while thread.is_alive():
            if stopping.is_set():
                with suppress(Exception):
                    files.cancel()
            else:
                report(meter.read(connection, time.monotonic()))
            thread.join(_CHECK_SECONDS)
        report(meter.read(connection, time.monotonic(), files.counts))
    if errors and not stopping.is_set():
        raise Unavailable(f"{location.name} could not be received.", why=format_reason(errors[0])) from errors[0]
    if files.stopped_by:
        raise StateError(
            f"{location.name} has stopped: {files.stopped_by}.",
            hint="Raise the limit and apply the application again, or remove the file.",
        )
    return files.counts


class _LogProgress:
    """Logs the progress every ten seconds."""

    def __init__(self) -> None:
        self._log_at = time.monotonic() + _LOG_SECONDS

    def __call__(self, progress: BulkProgress) -> None:
        if time.monotonic() >= self._log_at:
            self._log_at = time.monotonic() + _LOG_SECONDS
            _log.info("%s", progress)
