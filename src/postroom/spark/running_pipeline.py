"""`postroom pipeline run`: a session of Spark for the receive locations and sinks of one host."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.errors import MessageBoxUnavailable, PostroomError
from postroom.messagebox.configuration import Host, host_named, receive_locations
from postroom.messagebox.connection import connect
from postroom.messagebox.permission import require_host
from postroom.spark.bulk.once import Watcher
from postroom.spark.login import Login
from postroom.spark.pipeline_once import PipelineOnce, ended_early
from postroom.spark.pipeline_process import PipelineProcess
from postroom.spark.reasons import reason_of
from postroom.spark.session import create_session, death_of, end_session, has_died
from postroom.spark.settings import for_bulk, is_here
from postroom.stop_signals import stopped_by_signals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_DEATH_SECONDS = 5.0
#: A signal to a group of processes reaches one after the other, and Spark may end before this process is told.
_SIGNAL_SECONDS = 1.0


def run_pipeline(
    url: str,
    host_name: str,
    home: Path,
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    once: bool = False,
    as_role: bool = False,
    stop: threading.Event | None = None,
    watcher: Watcher | None = None,
) -> Counter[str]:
    """Serves the receive locations and the sinks of a host until SIGTERM or SIGINT comes, or ``stop`` is set. With
    ``once``, takes in what is there, writes what waits, and returns. The answer counts what is TALLIED and written.

    ``watcher`` is told of the progress of bulk files, with ``once``; without one the log tells.
    ``as_role`` logs in as the host's own role, where the server trusts that; otherwise the URL says who logs in.
    Raises NotFound, NotAllowed or Unavailable if it cannot start, and Unavailable if Spark or the MessageBox dies.
    """
    stopping = stop or threading.Event()
    with connect(url, application_name="postroom pipeline") as connection:
        host = host_named(connection, host_name)
    login = Login(url=url, user=host.role_name if as_role else None)
    with login.connect("pipeline") as connection:
        require_host(connection, host)
        locations = receive_locations(connection, host_id=host.host_id)
    if any(location.enabled and location.adapter_type.reads_rows for location in locations):
        settings = for_bulk(settings)
    with stopped_by_signals(stopping):
        try:
            name = f"pipeline-{host.name.lower()}"
            with _session(home, stopping, master=master, name=name, settings=settings) as session:
                return _run_on_spark(session, host, login, home, once=once, stop=stopping, watcher=watcher)
        except Exception as error:
            if isinstance(error, MessageBoxUnavailable):
                error.hint = "Run it again when the MessageBox answers. It continues where it was; nothing comes twice."
            elif isinstance(error, PostroomError):
                raise
            if not stopping.wait(_SIGNAL_SECONDS):
                raise
            if once:
                raise ended_early() from error
            _log.warning("ended while Spark was at work: %s", reason_of(error))
            return Counter()


def _run_on_spark(
    session: SparkSession,
    host: Host,
    login: Login,
    home: Path,
    *,
    once: bool,
    stop: threading.Event,
    watcher: Watcher | None,
) -> Counter[str]:
    where = session.sparkContext.master or ""
    if login.is_local and not is_here(where):
        text = "Spark runs on %s, and only tasks on this machine can reach the MessageBox: its address is local"
        _log.warning(text, where)
    if once:
        return PipelineOnce(session, host, login=login, home=home).run(stop, watcher)
    return PipelineProcess(session, host, login=login, home=home).run(stop)


class _Ended(Exception):
    """Spark did not start, because it was told to end meanwhile."""


@contextmanager
def _session(
    home: Path, stop: threading.Event, *, master: str | None, name: str, settings: Mapping[str, str] | None
) -> Iterator[SparkSession]:
    """A session that ends when the block does. Whoever ends this process may end its JVM as well, at any moment; what
    Spark says then is nobody's mistake."""
    try:
        session = create_session(home, master=master, name=name, settings=settings)
    except Exception as error:
        if stop.wait(_SIGNAL_SECONDS):
            raise _Ended(str(error)) from error
        raise
    try:
        yield session
    except PostroomError:
        raise
    except Exception as error:
        if not stop.wait(_SIGNAL_SECONDS) and has_died(session, within=_DEATH_SECONDS):
            raise death_of(home) from error
        raise
    finally:
        end_session(session)
