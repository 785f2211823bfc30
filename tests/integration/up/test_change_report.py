"""The supervisor reports what changes in a running installation."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

from postroom.message import Message
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.coordination.running_processes import (
    ProcessKind,
    register_process,
    report_problems,
)
from postroom.messagebox.instances import Suspended, SuspendedCount, count_suspended
from postroom.messagebox.intake.location_progress import LocationProgress, LocationReport, LocationState
from postroom.operations.monitored_services import list_monitored_services
from postroom.receiving.files.file_claimer import FileClaimer
from postroom.up.change_report import ChangeReport
from postroom.up.child_process import ChildProcess
from postroom.up.supervisor import Supervisor
from tests.support.box import Box, Region
from tests.support.file_location import add_file_location
from tests.support.orchestrations import ECHO, apply_orchestrations


class ReportingSupervisor(Supervisor):
    """A supervisor that starts no processes. Its reports come from the database."""

    def _read_children(self, connection: Connection) -> list[ChildProcess]:
        return []


def test_the_supervisor_reports_state_changes_of_locations(box: Box, tmp_path: Path) -> None:
    location = add_file_location(box, tmp_path / "in")
    of, report = location.location_id, LocationReport()
    stop = threading.Event()
    lines: list[str] = []

    def add_line(what: str) -> None:
        lines.append(what)
        if "no longer" in what:
            stop.set()
        elif "receiving" in what:
            report.store(connection, LocationProgress(location_id=of, state=LocationState.FAILING, reason="No room."))
        elif "room" in what:
            report.delete(connection, of)

    with connect(box.url) as connection:
        FileClaimer(connection, location, tmp_path).scan()
        assert [service.state for _, service in list_monitored_services(box.connection)] == ["starting"]
        report.store(connection, LocationProgress(location_id=of))
        ReportingSupervisor(box.url, tmp_path, report=add_line).run(stop)
    assert lines == [
        f"drop: receiving {location.uri}",
        "drop: No room.",
        "drop: no longer receiving",
        "Stopping: pipelines, then hosts",
    ]


def test_the_supervisor_reports_new_suspended_messages(box: Box, tmp_path: Path) -> None:
    box.add_port("Stopped", "exists(Region)", state="stopped")
    stop, lines = threading.Event(), list[str]()

    def publish(count: int) -> None:
        box.agent().publish([Message.of(b"x", promoted={Region: "EU"}) for _ in range(count)])

    class PublishingReport(ChangeReport):
        def report_suspended(self, counts: dict[Suspended, SuspendedCount]) -> None:
            super().report_suspended(counts)
            if not lines:
                publish(2)

    def add_line(what: str) -> None:
        lines.append(what)
        stop.set()

    publish(1)  # suspended before the supervisor has started
    supervisor = ReportingSupervisor(box.url, tmp_path)
    supervisor._changes = PublishingReport(add_line, add_line)
    supervisor.run(stop)
    assert lines[0] == "Stopped: 2 messages were suspended (PORT_STOPPED)"


def test_the_supervisor_reports_suspended_instances_of_orchestrations(box: Box, tmp_path: Path) -> None:
    apply_orchestrations(box, tmp_path, ECHO)
    lines = list[str]()
    changes = ChangeReport(lines.append, lines.append)
    changes.report_suspended(count_suspended(box.connection))
    box.add_suspended_orchestration("JOURNAL")
    changes.report_suspended(count_suspended(box.connection))
    assert lines == ["echo: 1 instance was suspended (JOURNAL)"]


def test_the_supervisor_reports_each_stop_of_an_ordered_port() -> None:
    lines = list[str]()
    changes = ChangeReport(lines.append, lines.append)
    port, time = Suspended("Ordered", "message", "DELIVERY"), datetime(2026, 3, 5, tzinfo=UTC)
    for seconds in (0, 1, 1, 2):
        changes.report_suspended({port: SuspendedCount(count=1, last_at=time + timedelta(seconds=seconds))})
    assert lines == ["Ordered: 1 message was suspended (DELIVERY)"] * 2


def test_the_supervisor_reports_once_that_a_host_does_not_load_edited_code(box: Box, tmp_path: Path) -> None:
    apply_orchestrations(box, tmp_path, ECHO)
    [echo] = [service for _, service in list_monitored_services(box.connection) if service.name == "echo"]
    process = register_process(box.connection, box.host().host_id, ProcessKind.HOST)
    report_problems(box.connection, process, {echo.service_id: "app.py is not what was applied."})
    lines = list[str]()
    changes = ChangeReport(lines.append, lines.append)
    for _ in range(2):
        changes.report_if_due(box.url)
        changes._next_report = 0.0
    assert lines == ["echo: app.py is not what was applied."]
