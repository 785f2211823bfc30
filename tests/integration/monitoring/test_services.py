"""Every kind of subscriber and receive location has a state, counts and a reason for monitoring."""

from __future__ import annotations

import logging
import socket
import uuid
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from postroom import adapters
from postroom.adapters import SparkSink
from postroom.application import CircuitBreaker
from postroom.client.client import Client
from postroom.hosts import HostInstance, HostSettings
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.coordination.running_processes import ProcessKind, register_process, report_problems
from postroom.messagebox.intake.file_claims import FileClaimState, store_problem
from postroom.messagebox.intake.location_progress import LocationProgress, LocationReport, LocationState
from postroom.messagebox.monitored_services import MonitoredService, read_monitored_services
from postroom.monitoring.metrics import Metric
from postroom.monitoring.services import ServiceChanges, ServiceWatch
from postroom.receiving.files.file_claimer import FileClaimer
from tests.support.box import Box, Region
from tests.support.file_location import add_file_location, read_numbered_claims
from tests.support.inbox_location import add_inbox_location
from tests.support.orchestrations import ECHO, apply_orchestrations
from tests.support.recording_adapter import RecordingAdapter, fail_always
from tests.support.sinks import add_sink, drain_batch, make_drain, publish
from tests.support.waiting import PATIENCE, wait_until


def read(box: Box, name: str) -> MonitoredService:
    [found] = (service for service in read_monitored_services(box.connection, "Default") if service.name == name)
    return found


def read_metrics(metrics: Iterable[Metric]) -> dict[tuple[str, ...], Any]:
    return {(metric.name, *labels): value for metric in metrics for labels, value in metric.values.items()}


def test_a_sink_is_failing_until_its_batch_is_written(box: Box, tmp_path: Path) -> None:
    add_sink(box, SparkSink("parquet", "lake"))
    assert (read(box, "Lake").kind, read(box, "Lake").state) == ("sink", "started")
    publish(box, b"a")

    def fail(step: str) -> None:
        raise RuntimeError("the disk is gone")

    with connect(box.url, user=box.host().role_name) as process:
        register_process(process, box.host().host_id, ProcessKind.PIPELINE)
        assert drain_batch(make_drain(box, tmp_path, fail), box) == 0
        failing = read(box, "Lake")
        assert (failing.state, failing.reason) == ("failing", "The batch could not be written. the disk is gone")
        assert (failing.waiting, failing.retrying) == (1, 1)
        box.make_due()
        seen = []
        drain = make_drain(box, tmp_path, lambda step: seen.append((step, read(box, "Lake").state)))
        with connect(box.url, user=box.host().role_name) as process:
            assert drain.queue.find_waiting_ports(process), "it releases what is due"
        assert drain_batch(drain, box) == 1
        assert ("begin", "failing") in seen, "it is failing while the batch is tried again"
    assert (read(box, "Lake").state, read(box, "Lake").waiting) == ("started", 0)


def test_a_send_port_is_failing_while_a_message_waits_for_its_next_attempt(box: Box, tmp_path: Path) -> None:
    box.add_port("Europe", "exists(Orders.Region)", retry_seconds=3600)
    box.add_port("Paused", "exists(Orders.Region)", circuit_breaker=CircuitBreaker(failures=1, period=0))
    box.add_port("Bound", state="bound")
    recorder = RecordingAdapter(fail_always)
    settings = HostSettings(runs_jobs=False, stop_within=timedelta(seconds=PATIENCE))
    with HostInstance(
        box.url, "Default", tmp_path, as_role=True, build_adapter=recorder.build, settings=settings
    ) as host:
        publish(box, b"a")
        wait_until(lambda: {read(box, name).state for name in ("Europe", "Paused")} == {"failing"}, what="failures")
        assert read(box, "Bound").state == "bound"
        assert read(box, "Europe").reason == "The receiver is down."
        assert (read(box, "Europe").waiting, read(box, "Europe").retrying) == (1, 1)
        assert sorted(host.find_problems()) == ["Europe: The receiver is down.", f"Paused: {read_line(box, 'Paused')}"]
        found = read_metrics(host.collect_metrics())
        assert found["postroom_service_state", "Default", "send port", "Europe", "failing"] == 1
        assert found["postroom_service_messages", "Default", "send port", "Europe", "waiting to retry"] == 1
        assert found["postroom_service_oldest_seconds", "Default", "send port", "Europe"] > 0
        recorder.behave = lambda message, attempt: None
        box.make_due()
        wait_until(lambda: read(box, "Europe").state == "started", what="the delivery")


def read_line(box: Box, name: str) -> str:
    return " ".join(str(read(box, name).reason).split())


def test_a_program_that_asks_for_a_retry_is_failing(box: Box) -> None:
    with Client(box.url) as client, client.subscribe("billing", Region == "EU") as subscription:
        assert (read(box, "billing").kind, read(box, "billing").state) == ("program", "started")
        publish(box, b"a")
        received = subscription.receive(timeout=PATIENCE)
        assert received is not None
        received.retry(timedelta(hours=1), "The ledger is closed.")
        assert (read(box, "billing").state, read(box, "billing").reason) == ("failing", "The ledger is closed.")


def test_an_orchestration_whose_code_is_not_loaded_is_failing(box: Box, tmp_path: Path) -> None:
    apply_orchestrations(box, tmp_path, ECHO)
    echo = read(box, "echo")
    assert (echo.kind, echo.state) == ("orchestration", "started")
    process = register_process(box.connection, box.host().host_id, ProcessKind.HOST)
    report_problems(box.connection, process, {echo.service_id: "app.py is not what was applied."})
    assert (read(box, "echo").state, read(box, "echo").reason) == ("failing", "app.py is not what was applied.")
    report_problems(box.connection, process, {})
    assert read(box, "echo").state == "started"
    box.add_suspended_orchestration("JOURNAL")
    assert read(box, "echo").suspended == 1


def test_a_location_has_the_state_that_its_process_reports(box: Box, tmp_path: Path) -> None:
    location = add_file_location(box, tmp_path / "in")
    assert read(box, "drop").state is None
    failing = LocationProgress(location_id=location.location_id, state=LocationState.FAILING, reason="No room.")
    LocationReport().store(box.connection, failing)
    assert (read(box, "drop").state, read(box, "drop").reason) == ("failing", "No room.")


def test_an_http_location_whose_port_is_taken_is_failing(box: Box, tmp_path: Path) -> None:
    with ExitStack() as stack:
        taken = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = taken.getsockname()[1]
        add_inbox_location(box, adapter=adapters.HttpReceive("/orders", port=port))
        settings = HostSettings(runs_jobs=False, stop_within=timedelta(seconds=PATIENCE))
        host = stack.enter_context(HostInstance(box.url, "Default", tmp_path, as_role=True, settings=settings))
        wait_until(lambda: read(box, "web").state == "failing", what="the report")
        assert "cannot be started" in str(read(box, "web").reason)
        [problem] = host.find_problems()
        assert problem.startswith("web: ")
        assert str(port) in problem


def quarantine_file(box: Box, home: Path) -> FileClaimer:
    """Have a location claim a file, and quarantine it."""
    location = add_file_location(box, home / "in", settle=0)
    (home / "in").mkdir()
    (home / "in" / "broken.json").write_bytes(b"{")
    claimer = FileClaimer(box.connection, location, home)
    wait_until(lambda: claimer.scan().claimed, what="the claim")
    [claim] = read_numbered_claims(box.connection, location)
    store_problem(box.connection, claim, FileClaimState.FAILED, "could not be received: it is broken.")
    return claimer


def test_a_quarantined_file_is_counted_and_its_problem_is_known(box: Box, tmp_path: Path) -> None:
    quarantine_file(box, tmp_path)
    drop = read(box, "drop")
    assert (drop.quarantined, drop.waiting) == (1, 0)
    assert drop.last_problem == "broken.json could not be received: it is broken."


def test_a_quarantined_file_is_logged_once(box: Box, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    claimer = quarantine_file(box, tmp_path)
    for _ in range(3):
        claimer._recovered_at = claimer._clock() - timedelta(seconds=3)  # the next recovery is due
        assert len(claimer.scan().problems) == 1
        assert len(claimer.scan().problems) == 1, "a scan without a recovery knows it, too"
    assert caplog.text.count("could not be received") == 1


def test_each_change_of_a_state_is_reported_once(box: Box) -> None:
    lines: list[str] = []
    changes = ServiceChanges(lines.append, lambda line: lines.append(f"! {line}"))
    port = _build_service(kind="send port", name="Europe", state="started")
    location = _build_service(kind="location", name="drop", state="starting")
    steps: list[dict[str, dict[str, Any]]] = [
        {},
        {"port": {"state": "failing", "reason": "Connection\n refused."}, "location": {"state": "receiving"}},
        {"port": {"state": "failing", "reason": "Connection refused again."}, "location": {"state": "receiving"}},
        {"port": {"state": "started"}, "location": {"state": "failing", "reason": "No room."}},
        {"port": {"state": "stopped"}, "location": {"state": "receiving", "quarantined": 1, "last_problem": "a: bad."}},
        {"port": {"state": "stopped"}, "location": {"state": None, "quarantined": 3, "last_problem": "c: bad."}},
    ]
    for step in steps:
        changes.report([replace(port, **step.get("port", {})), replace(location, **step.get("location", {}))])
    assert lines == [
        "! Europe: Connection refused.",
        "drop: receiving",
        "Europe: no longer failing",
        "! drop: No room.",
        "Europe: stopped",
        "drop: receiving",
        "! drop: a: bad.",
        "drop: no longer receiving",
        "! drop: 2 files are in quarantine. The last: c: bad.",
    ]


def test_a_process_logs_a_failure_and_its_end(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    echo: list[MonitoredService] = [_build_service(kind="sink", name="Lake", state="failing")]

    def list_services(connection: Connection) -> list[MonitoredService]:
        return list(echo)

    watch = ServiceWatch("Default", lambda: connect(box.url), list_services)
    try:
        for state in ("failing", "failing", "started", "started"):
            echo[:] = [_build_service(kind="sink", name="Lake", state=state)]
            watch._step()
    finally:
        watch.close()
    assert [record.getMessage() for record in caplog.records] == ["Lake: failing", "Lake: no longer failing"]


_ID = uuid.uuid4()


def _build_service(**fields: Any) -> MonitoredService:
    unset: dict[str, Any] = {"version": None, "reason": None, "has_problem": False, "last_problem": None, "age": 0.0}
    counts = dict.fromkeys(("waiting", "retrying", "suspended", "quarantined"), 0)
    return MonitoredService(**unset | counts | {"service_id": uuid.uuid5(_ID, fields["name"])} | fields)
