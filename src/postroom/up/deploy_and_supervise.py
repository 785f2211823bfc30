"""Deploy an application and prepare a supervisor for it: the part that `postroom up` and the demo share."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from postroom.adapters import SinkDefinition
from postroom.adapters.contract import ReceivedBy
from postroom.application.definition import ApplicationDefinition
from postroom.errors import StateError
from postroom.messagebox.connection import connect
from postroom.messagebox.embedded import EmbeddedServer, server_folder
from postroom.messagebox.migrate import migrate
from postroom.monitoring.services import Report
from postroom.operations.deployment.apply import apply
from postroom.operations.deployment.backlog import Backlog, apply_backlog_decisions
from postroom.operations.deployment.plan import Action
from postroom.operations.ports.receive_locations import create_watched_folders
from postroom.up.supervisor import MonitoringSettings, SparkOptions, Supervisor


@contextmanager
def deploy_and_supervise(
    definition: ApplicationDefinition,
    home: Path,
    *,
    database: str | None,
    spark: SparkOptions,
    report: Report,
    report_problem: Report | None = None,
    backlog: Backlog | None = None,
    allow_incompatible: bool = False,
    monitoring: MonitoringSettings | None = None,
) -> Iterator[Supervisor]:
    """Apply the application to its MessageBox and yield a supervisor that is ready to run. Spark starts meanwhile: it
    takes longer than the database. Problems go to ``report`` too if ``report_problem`` is not given."""
    with lock_home(home):
        server = EmbeddedServer(server_folder(home)) if database is None else None
        supervisor = Supervisor(
            database,
            home,
            server=server,
            spark=spark,
            monitoring=monitoring,
            report=report,
            report_problem=report_problem,
        )
        try:
            pipelines = _find_pipelines(definition)
            supervisor.start_pipelines(pipelines)
            if server is not None:
                report("Starting PostgreSQL")
            with server or nullcontext():
                _apply(definition, supervisor.url, home, report, backlog, allow_incompatible)
                if pipelines:
                    report("Spark is starting, which takes some seconds")
                yield supervisor
        finally:
            supervisor.stop()


def _find_pipelines(definition: ApplicationDefinition) -> dict[str, bool]:
    """Return the hosts that need Spark, each with whether one of its locations reads bulk files."""
    hosts = {port.host: False for port in definition.send_ports if isinstance(port.adapter, SinkDefinition)}
    locations = (location for port in definition.receive_ports if not port.two_way for location in port.locations)
    for location in (location for location in locations if location.adapter.received_by is not ReceivedBy.POLLER):
        hosts[location.host] = hosts.get(location.host, False) or (location.enabled and location.adapter.reads_rows)
    return hosts


def _apply(
    definition: ApplicationDefinition,
    url: str,
    home: Path,
    report: Report,
    backlog: Backlog | None,
    allow_incompatible: bool,
) -> None:
    migrate(url)
    with connect(url, application_name="postroom apply") as connection:
        applied = apply(connection, definition, home=home, backlog=backlog, allow_incompatible=allow_incompatible)
        for step in (step for step in applied.changes if step.action is Action.REMOVE):
            report(f"Removed: {step.kind} {step.name}")
        for remark in (*map(str, apply_backlog_decisions(connection, definition.name)), *applied.notes):
            report(remark)
        for problem in create_watched_folders(connection, home):
            report(problem)
    report(f"Application {definition.name} is deployed")


@contextmanager
def lock_home(
    home: Path, *, hint: str = "Stop that process first. To change what it runs, use: postroom apply APP"
) -> Iterator[None]:
    """Lock the home folder for this process. Create it if it is missing.

    Raise StateError with ``hint`` if another process has locked it, or if it cannot be used. The kernel releases the
    lock when the process ends, however it ends."""
    path = home / ".postroom" / "up.pid"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+")
    except OSError as error:
        raise StateError(
            f"The home folder {home} cannot be used.",
            why=f"{error.strerror or error}: {error.filename}.",
            hint="Choose another --home, or run this as the owner of that folder.",
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise StateError(
                f"{home} is in use: process {file.read().strip() or 'unknown'} runs it.",
                why="One process runs everything in a home folder: 'postroom up', a demo or a restore.",
                hint=hint,
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
