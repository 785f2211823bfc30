"""Served receive locations and watched folders."""

from __future__ import annotations

from pathlib import Path

from postroom.messagebox.connection import connect
from postroom.messagebox.coordination.running_processes import (
    ProcessKind,
    register_process,
)
from postroom.messagebox.intake.location_progress import LocationProgress, LocationReport, LocationState
from postroom.operations.monitored_services import list_monitored_services
from postroom.operations.ports.receive_locations import (
    create_watched_folders,
    disable,
    list_locations,
    list_served_locations,
)
from postroom.receiving.files.file_claimer import FileClaimer
from tests.support.box import Box
from tests.support.file_location import add_file_location
from tests.support.inbox_location import add_inbox_location
from tests.support.two_way import make_location_two_way


def describe_locations(box: Box) -> dict[str, tuple[str | None, str | None]]:
    return {service.name: (service.state, service.reason) for _, service in list_monitored_services(box.connection)}


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
        assert describe_locations(box) == {"drop": (None, None)}
        register_process(connection, location.host_id, ProcessKind.PIPELINE)
        assert describe_locations(box) == {"drop": ("failing", "No folder.")}
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
        assert describe_locations(box) == {"web": ("receiving", f"receiving {location.uri}")}
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
    box.set_locations(adapter={"kind": "carrier pigeon"})
    add_file_location(box, tmp_path / "in")
    [problem] = create_watched_folders(box.connection, tmp_path)
    assert (tmp_path / "in").is_dir()
    assert problem.startswith("The stored definition of the receive location 'broken' cannot be read.")
