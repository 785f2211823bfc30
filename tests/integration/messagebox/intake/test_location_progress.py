"""Running receive locations report their progress at most once a second, and only if it has changed."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from postroom.messagebox.connection import connect
from postroom.messagebox.intake.location_progress import LocationProgress, LocationReport, LocationState
from tests.support.box import Box


def test_a_report_is_written_once_a_second_at_most_unless_the_state_changes(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    location = box.add_location()
    report = LocationReport()
    progress = LocationProgress(location_id=location.location_id, rows=1)

    def stored() -> object:
        rows = "SELECT state, rows, reason, rate FROM running_locations"
        return box.connection.execute(rows.encode()).fetchone()

    with connect(box.url, user=box.host().role_name) as connection:
        report.store(connection, progress)
        assert stored() == ("receiving", 1, None, 0.0)
        report.store(connection, replace(progress, rows=2))
        assert stored() == ("receiving", 1, None, 0.0)
        now += 1.1
        report.store(connection, replace(progress, rows=3, rate=2.5))
        assert stored() == ("receiving", 3, None, 2.5)
        failing = replace(progress, rows=3, state=LocationState.FAILING, reason="a \0 in it")
        report.store(connection, failing)
        assert stored() == ("failing", 3, "a \\0 in it", 0.0)
        report.delete(connection, location.location_id)
    assert box.count("running locations") == 0


def test_a_host_reports_only_its_own_locations(box: Box) -> None:
    location = box.add_location()
    other = box.add_host("Other")
    progress = LocationProgress(location_id=location.location_id)
    with connect(box.url, user=box.host().role_name) as connection:
        LocationReport().store(connection, progress)
    with connect(box.url, user=other.role_name) as connection:
        assert connection.execute("SELECT 1 FROM messagebox.running_locations").fetchall() == []
        LocationReport().delete(connection, location.location_id)
    assert box.count("running locations") == 1
