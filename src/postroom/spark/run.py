"""Run a pipeline: a Spark session for the receive locations and sinks of one host."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.errors import MessageBoxUnavailable, PostroomError
from postroom.messagebox.configuration.hosts import Host, check_login_of_host, find_host
from postroom.messagebox.connection import Login, connect
from postroom.monitoring.server import MonitoringServer
from postroom.ports.receive_locations import read_receive_locations
from postroom.processes.frozen_processes import kill_frozen_children
from postroom.processes.stop_signals import set_on_stop_signals
from postroom.spark.error_reasons import format_reason
from postroom.spark.pipeline_process import PipelineProcess, Watcher
from postroom.spark.session import create_session, end_session, has_died, spark_died_error
from postroom.spark.settings import add_bulk_settings, has_bulk_settings, is_this_machine
from postroom.spark.single_run_errors import stopped_early_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

#: A signal to a process group reaches one process after the other, and Spark may end before this process gets it.
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
    watcher: Watcher | None = None,
    started: SparkSession | None = None,
    monitoring: MonitoringServer | None = None,
) -> Counter[str]:
    """Serve the receive locations and the sinks of a host until SIGTERM or SIGINT. With ``once``, receive what is
    there, write what waits, and return. Return the tally, and the number of written messages.

    ``watcher`` gets the progress of bulk files and sinks.
    ``as_role`` logs in as the role of the host, if the server trusts that; otherwise the URL names the user.
    ``monitoring`` shows the metrics of the process.
    ``started`` is a session that was started in advance, with these settings. It ends with this call.
    Raise NotFound, NotAllowed or Unavailable if it cannot start, and Unavailable if Spark or the MessageBox dies.
    """
    stopping = threading.Event()
    with connect(url, application_name="postroom pipeline") as connection:
        host = find_host(connection, host_name)
    login = Login(url=url, user=host.role_name if as_role else None)
    with login.connect("pipeline") as connection:
        check_login_of_host(connection, host)
        locations = read_receive_locations(connection, host_id=host.host_id)
    if any(location.enabled and location.adapter_type.reads_rows for location in locations):
        if started is not None and not has_bulk_settings(settings or {}):
            # Bulk locations of another application: a JVM without the optimising compiler is too slow for them.
            end_session(started)
            started = None
        settings = add_bulk_settings(settings)
    with set_on_stop_signals(stopping):
        try:
            with _session(home, stopping, host, master=master, settings=settings, started=started) as session:
                return _run_on_spark(
                    session, host, login, home, once=once, stop=stopping, watcher=watcher, monitoring=monitoring
                )
        except Exception as error:
            if isinstance(error, MessageBoxUnavailable):
                error.hint = "Run it again when the MessageBox answers. It continues where it was; nothing comes twice."
            elif isinstance(error, PostroomError):
                raise
            if not stopping.wait(_SIGNAL_SECONDS):
                raise
            if once:
                raise stopped_early_error() from error
            _log.warning("stopped while Spark was running: %s", format_reason(error))
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
    monitoring: MonitoringServer | None,
) -> Counter[str]:
    where = session.sparkContext.master or ""
    if login.is_local and not is_this_machine(where):
        text = "Spark runs on %s, and only tasks on this machine can reach the MessageBox: its address is local"
        _log.warning(text, where)
    with kill_frozen_children():  # the JVM and the workers
        process = PipelineProcess(session, host, login=login, home=home, once=once, watcher=watcher)
        if monitoring is not None:
            monitoring.process = process
        return process.run(stop)


def start_session(
    home: Path, host_name: str, *, master: str | None, settings: Mapping[str, str] | None
) -> SparkSession:
    """Start the Spark session of a host's pipeline. It needs no MessageBox."""
    return create_session(home, master=master, name=f"pipeline-{host_name.lower()}", settings=settings)


class _Ended(Exception):
    """Spark did not start, because the process was stopped."""


@contextmanager
def _session(
    home: Path,
    stop: threading.Event,
    host: Host,
    *,
    master: str | None,
    settings: Mapping[str, str] | None,
    started: SparkSession | None,
) -> Iterator[SparkSession]:
    """Create a session, unless one is ``started``. It ends with the block. A signal may end the JVM at any moment, too;
    errors of Spark are not failures then."""
    try:
        session = started or start_session(home, host.name, master=master, settings=settings)
    except Exception as error:
        if stop.wait(_SIGNAL_SECONDS):
            raise _Ended(str(error)) from error
        raise
    try:
        yield session
    except PostroomError:
        raise
    except Exception as error:
        if not stop.wait(_SIGNAL_SECONDS) and has_died(session):
            raise spark_died_error(home) from error
        raise
    finally:
        end_session(session)
