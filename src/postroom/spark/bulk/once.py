"""What a bulk location has claimed, once and to its end: `postroom pipeline run --once`."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from postroom.errors import StateError, Unavailable
from postroom.spark.bulk.files import BulkFiles
from postroom.spark.bulk.progress import BulkMeter, BulkProgress
from postroom.spark.login import Login
from postroom.spark.reasons import reason_of

_log = logging.getLogger(__name__)

_LOOK_SECONDS, _TELL_SECONDS = 0.5, 10.0

#: Told of progress, about twice a second.
Watcher = Callable[[BulkProgress], None]


def receive_once(
    files: BulkFiles,
    *,
    login: Login,
    stopping: threading.Event,
    watcher: Watcher | None = None,
    reporter: Watcher | None = None,
) -> Counter[str]:
    """Publishes all that is claimed; what it COUNTED. The caller holds the location's lock. The log, or else the
    ``watcher``, is told of progress, and the ``reporter`` too.

    Raises Unavailable if it cannot go on, StateError if a file has too many bad rows."""
    location = files.location
    errors: list[Exception] = []

    def work() -> None:
        try:
            with login.connect("bulk") as connection:
                while not stopping.is_set() and files.receive(connection):
                    pass
        except Exception as error:
            errors.append(error)

    watchers = [watcher or _LogNowAndThen(), *([reporter] if reporter else [])]

    def tell(progress: BulkProgress) -> None:
        for one in watchers:
            one(progress)

    meter = BulkMeter(location.name, location.location_id)
    thread = threading.Thread(target=work, name=f"jobs of {location.name}", daemon=True)
    with login.connect("progress") as connection:
        thread.start()
        while thread.is_alive():
            if stopping.is_set():
                with suppress(Exception):
                    files.cancel()
            else:
                tell(meter.look(connection, time.monotonic()))
            thread.join(_LOOK_SECONDS)
        # What was published since the meter last saw a file, it cannot see: a file that is done has no row.
        last = meter.look(connection, time.monotonic())
        tell(replace(last, rows=max(last.rows, files.counts["rows"]), bad=max(last.bad, files.counts["bad"])))
    if errors and not stopping.is_set():
        raise Unavailable(f"{location.name} could not be received.", why=reason_of(errors[0])) from errors[0]
    if files.stopped_by:
        raise StateError(
            f"{location.name} has stopped: {files.stopped_by}.",
            hint="Raise the limit and apply the application again, or take the file away.",
        )
    return files.counts


class _LogNowAndThen:
    """Tells the log what there is to tell."""

    def __init__(self) -> None:
        self._tell_at = time.monotonic() + _TELL_SECONDS

    def __call__(self, progress: BulkProgress) -> None:
        if time.monotonic() >= self._tell_at:
            self._tell_at = time.monotonic() + _TELL_SECONDS
            _log.info("%s", progress)
