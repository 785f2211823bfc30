"""Served receive locations, watched folders, and the reports of the supervisor."""

from __future__ import annotations

import threading
from pathlib import Path

from postroom.message import Message
from postroom.messagebox.connection import connect
from postroom.messagebox.coordination.running_processes import (
    ProcessKind,
    read_code_problems,
    register_process,
    report_code_problems,
)
from postroom.messagebox.streams.location_progress import LocationProgress, LocationReport, LocationState
from postroom.operations.instances.listing import Suspended, count_suspended
from postroom.operations.ports.receive_locations import (
    create_watched_folders,
    describe_running_locations,
    disable,
    list_locations,
    list_served_locations,
)
from postroom.operations.running.supervisor import Supervisor
from postroom.spark.intake.file_claimer import FileClaimer
from tests.support.box import Box, Region
from tests.support.file_location import add_file_location
from tests.support.inbox_location import add_inbox_location
from tests.support.orchestrations import ECHO, apply_orchestrations
from tests.support.two_way import make_location_two_way


def test_a_location_is_served_while_a_process_has_locked_it(box: Box, tmp_path: Path) -> None:
    location = add_file_location(box, tmp_path / "in")
    add_file_location(box, tmp_path / "other", name="other")
    assert list_served_locations(box.connection) == []
    with connect(box.url) as connection:
        claimer = FileClaimer(connection, location, tmp_path)
        assert claimer.scan().active
        assert list_served_locations(box.connection) == [location]
        claimer.release()
        assert list_served_locations(box.connection) == []


def test_a_failing_location_is_shown_with_its_reason_although_its_lock_is_released(box: Box, tmp_path: Path) -> None:
    location = add_file_location(box, tmp_path / "in")
    with connect(box.url) as connection:
        failing = LocationProgress(location_id=location.location_id, state=LocationState.FAILING, reason="No folder.")
        LocationReport().store(connection, failing)
        assert describe_running_locations(box.connection) == {}
        register_process(connection, location.host_id, ProcessKind.PIPELINE)
        assert describe_running_locations(box.connection) == {"drop": (LocationState.FAILING, "No folder.")}
        [listed] = list_locations(box.connection)
        assert (listed.state, listed.reason) == ("failing", "No folder.")


def test_a_two_way_location_is_served_while_its_host_runs(box: Box) -> None:
    location = make_location_two_way(box, add_inbox_location(box))
    [listed] = list_locations(box.connection)
    assert (listed.two_way, listed.state) == (True, "not running")
    with connect(box.url) as connection:
        register_process(connection, location.host_id, ProcessKind.HOST)
        assert list_served_locations(box.connection) == [location]
        [listed] = list_locations(box.connection)
        assert listed.state == "receiving"
        assert describe_running_locations(box.connection) == {
            "web": (LocationState.RECEIVING, f"receiving {location.uri}")
        }
        disable(box.connection, "web")
        [listed] = list_locations(box.connection)
        assert listed.state == "disabled"


def test_watched_folders_are_created(box: Box, tmp_path: Path) -> None:
    add_file_location(box, tmp_path / "deep" / "in")
    (tmp_path / "file").touch()
    add_file_location(box, tmp_path / "file" / "in", name="other")
    [problem] = create_watched_folders(box.connection, tmp_path)
    assert (tmp_path / "deep" / "in").is_dir()
    assert problem == f"other: {tmp_path / 'file' / 'in'} cannot be created: Not a directory"


def test_an_invalid_location_does_not_prevent_other_folders(box: Box, tmp_path: Path) -> None:
    box.add_location(name="broken", port="BrokenIn")
    box.connection.execute('UPDATE receive_locations SET adapter = \'{"kind": "carrier pigeon"}\'')
    add_file_location(box, tmp_path / "in")
    [problem] = create_watched_folders(box.connection, tmp_path)
    assert (tmp_path / "in").is_dir()
    assert problem.startswith("The stored definition of the receive location 'broken' cannot be read.")


class ReportingSupervisor(Supervisor):
    """A supervisor that starts no processes. Its reports come from the database."""

    def _read_children(self):  # type: ignore[no-untyped-def]
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
        assert describe_running_locations(box.connection) == {}  # it only starts
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

    class PublishingSupervisor(ReportingSupervisor):
        def _report_suspended(self, counts: dict[Suspended, int]) -> None:
            super()._report_suspended(counts)
            if not lines:
                publish(2)

    def add_line(what: str) -> None:
        lines.append(what)
        stop.set()

    publish(1)  # suspended before the supervisor has started
    PublishingSupervisor(box.url, tmp_path, report=add_line).run(stop)
    assert lines[0] == "Stopped: 2 messages were suspended (PORT_STOPPED)"


def test_the_supervisor_reports_suspended_instances_of_orchestrations(box: Box, tmp_path: Path) -> None:
    apply_orchestrations(box, tmp_path, ECHO)
    lines = list[str]()
    supervisor = ReportingSupervisor(box.url, tmp_path, report_problem=lines.append)
    supervisor._report_suspended(count_suspended(box.connection))
    box.connection.execute(
        "INSERT INTO orchestration_instances (instance_id, host_id, service_id, priority, created_at, suspended_at,"
        " error_code) SELECT gen_random_uuid(), host_id, id, 7, now(), now(), 'JOURNAL' FROM orchestrations"
    )
    supervisor._report_suspended(count_suspended(box.connection))
    assert lines == ["echo: 1 instance was suspended (JOURNAL)"]


def test_the_supervisor_reports_once_that_a_host_does_not_load_edited_code(box: Box, tmp_path: Path) -> None:
    lines = list[str]()
    supervisor = ReportingSupervisor(box.url, tmp_path, report_problem=lines.append)
    process = register_process(box.connection, box.host().host_id, ProcessKind.HOST)
    report_code_problems(box.connection, process, {"app.py": "app.py is not what was applied."})
    for _ in range(2):
        supervisor._report_code_problems(read_code_problems(box.connection))
    assert lines == ["app.py is not what was applied."]
