"""`postroom up` starts Spark while it deploys the application."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from postroom import BTS, Application, adapters, pipelines
from postroom.application.definition import ApplicationDefinition
from postroom.errors import StateError
from postroom.messagebox.connection import Connection
from postroom.operations.hosts import add_host
from postroom.spark.settings import has_bulk_settings
from postroom.up import deploy_and_supervise as up
from postroom.up.supervisor import SparkOptions, Supervisor
from tests.support.box import Box
from tests.support.outbox import declare_receive
from tests.support.waiting import PATIENCE, wait_until

#: Instead of a pipeline: it says how far it is.
_HELD = """
import signal, sys
print("started", sys.argv[1:], flush=True)
print("released" if sys.stdin.readline() else "ended", flush=True)
signal.pause()
"""


class HoldingSupervisor(Supervisor):
    """A supervisor whose pipelines are short scripts. It finds no other processes to run."""

    made: list[HoldingSupervisor]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.made.append(self)

    def _build_child(self, kind: str, host: str, *, reads_rows: bool = False) -> Any:
        child = super()._build_child(kind, host, reads_rows=reads_rows)
        child.command = [sys.executable, "-c", _HELD]
        return child

    def _read_children(self, connection: Connection) -> list[Any]:
        return []


@pytest.fixture
def supervisors(monkeypatch: pytest.MonkeyPatch) -> list[HoldingSupervisor]:
    """The supervisors that were made instead of ordinary ones."""
    monkeypatch.setattr(HoldingSupervisor, "made", [], raising=False)
    monkeypatch.setattr(up, "Supervisor", HoldingSupervisor)
    return HoldingSupervisor.made


@pytest.fixture
def definition() -> ApplicationDefinition:
    app = Application("orders")
    app.receive_port("In").location("drop", adapters.File("in"), pipeline=pipelines.PassThrough())
    app.send_port("Out", adapters.File("out"), filter=BTS.ReceivePortName.exists())
    return app.definition()


def read_log(home: Path) -> str:
    log = home / ".postroom" / "logs" / "pipeline-main.log"
    return log.read_text() if log.exists() else ""


def nowhere(folder: Path) -> str:
    return f"postgresql:///nowhere?host={folder}"


def test_a_pipeline_starts_before_the_deployment_and_continues_after_it(
    supervisors: list[HoldingSupervisor],
    definition: ApplicationDefinition,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def deploy(*_: object) -> None:
        wait_until(lambda: "started ['--hold']" in read_log(tmp_path), what="the pipeline")
        assert "released" not in read_log(tmp_path)

    monkeypatch.setattr(up, "_apply", deploy)
    stop, lines = threading.Event(), list[str]()
    with up.deploy_and_supervise(
        definition, tmp_path, database=nowhere(tmp_path), spark=SparkOptions(), report=lines.append
    ) as supervisor:
        running = threading.Thread(target=supervisor.run, args=(stop,))
        running.start()
        wait_until(lambda: "released" in read_log(tmp_path), what="the pipeline to continue")
        stop.set()
        running.join()
    assert lines[0] == "Spark is starting, which takes some seconds"
    assert [line for line in lines if line.startswith("pipeline Main")] == [lines[1]]
    assert supervisor.pids() == {}


def test_a_failed_deployment_ends_the_pipelines(
    supervisors: list[HoldingSupervisor],
    definition: ApplicationDefinition,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pids: list[int] = []

    def fail(*_: object) -> None:
        pids.extend(supervisors[0].pids().values())
        raise StateError("no")

    monkeypatch.setattr(up, "_apply", fail)
    with (
        pytest.raises(StateError),
        up.deploy_and_supervise(
            definition, tmp_path, database=nowhere(tmp_path), spark=SparkOptions(), report=lambda _: None
        ),
    ):
        pass
    assert len(pids) == 1
    assert not psutil.pid_exists(pids[0])


def test_only_hosts_with_locations_or_sinks_get_a_pipeline(tmp_path: Path) -> None:
    app = Application("mixed")
    everything = BTS.ReceivePortName.exists()
    for name in ("Files", "Rows", "Sinks", "Ports", "Polled"):
        app.host(name)
    rows = adapters.SparkReader("csv", "bulk", schema="a string")
    app.receive_port("A").location("a", adapters.File("in"), pipeline=pipelines.PassThrough(), host="Files")
    app.receive_port("B").location("b", rows, pipeline=pipelines.Rows(), host="Rows")
    app.receive_port("C").location("c", adapters.File("in2"), pipeline=pipelines.PassThrough(), host="Rows")
    polled = declare_receive("postgresql://db/erp")
    app.receive_port("P").location("p", polled, pipeline=pipelines.PassThrough(), host="Polled")
    app.send_port("D", adapters.SparkSink("parquet", "lake"), filter=everything, host="Sinks")
    app.send_port("E", adapters.File("out"), filter=everything, host="Ports")
    assert up._find_pipelines(app.definition()) == {"Files": False, "Rows": True, "Sinks": False}


@pytest.mark.parametrize("reads_rows", [True, False])
def test_a_pipeline_of_bulk_files_starts_with_the_optimising_compiler(tmp_path: Path, reads_rows: bool) -> None:
    spark = SparkOptions(settings={"spark.driver.memory": "2g"})
    child = Supervisor(nowhere(tmp_path), tmp_path, spark=spark)._build_child("pipeline", "Main", reads_rows=reads_rows)
    settings = dict(word.split("=", 1) for word in child.command if word.startswith("spark."))
    assert settings["spark.driver.memory"] == "2g"
    assert has_bulk_settings(settings) is reads_rows


def test_a_new_host_is_started_when_the_configuration_changes(box: Box, tmp_path: Path) -> None:
    class IdleSupervisor(Supervisor):
        """A supervisor whose processes do nothing."""

        def _build_child(self, kind: str, host: str, *, reads_rows: bool = False) -> Any:
            child = super()._build_child(kind, host, reads_rows=reads_rows)
            child.command = [sys.executable, "-c", "import signal; signal.pause()"]
            return child

    supervisor = IdleSupervisor(box.url, tmp_path, report=lambda _: None)
    stop = threading.Event()
    running = threading.Thread(target=supervisor.run, args=(stop,))
    running.start()
    try:
        wait_until(lambda: "host Default" in supervisor.pids(), what="the first host")
        # The next poll without a notification would be too late for this test.
        supervisor._next_host_poll = time.monotonic() + 10 * PATIENCE
        add_host(box.connection, "Partner")
        wait_until(lambda: "host Partner" in supervisor.pids(), what="the new host")
        wait_until(lambda: supervisor._listener.connection is not None)
        box.connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'postroom up' AND datname = current_database()"
        )
        add_host(box.connection, "Other")
        wait_until(lambda: "host Other" in supervisor.pids(), what="the host that was added without a connection")
    finally:
        stop.set()
        running.join()
