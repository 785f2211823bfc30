"""`apply` waits until the running processes of the application's hosts have taken the changes."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from postroom import Application, Property, adapters, pipelines
from postroom.application import ApplicationDefinition
from postroom.errors import ChangesNotTaken
from postroom.hosts import HostInstance, HostSettings
from postroom.messagebox.configuration.hosts import find_host
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.coordination.running_processes import (
    ProcessKind,
    deregister_process,
    list_running_processes,
    read_routing_version,
    register_process,
    report_configuration,
)
from postroom.operations.deployment.apply import apply
from postroom.operations.deployment.taken_changes import wait_until_taken
from tests.support.contents import Contents
from tests.support.contents.counts import Countable
from tests.support.waiting import PATIENCE

Region = Property("Orders.Region", str)


def build_application(folder: str = "out") -> ApplicationDefinition:
    app = Application("taken")
    app.receive_port("TakenIn").location(
        "taken", adapters.File("in"), pipeline=pipelines.Json(promote={Region: "region"})
    )
    app.send_port("Taken", adapters.File(folder), filter=Region == "EU")
    return app.definition()


@pytest.fixture
def connection(database: str, tmp_path: Path) -> Iterator[Connection]:
    """Connect to a MessageBox with an earlier version of the application."""
    with closing(connect(database)) as opened:
        apply(opened, build_application("before"), home=tmp_path)
        yield opened


def count(connection: Connection, what: Countable) -> int:
    return Contents(connection).count(what)


@contextmanager
def registered(database: str, *, host: str = "Main", kind: ProcessKind = ProcessKind.PIPELINE) -> Iterator[Connection]:
    """Register a process that takes no changes by itself."""
    with closing(connect(database)) as connection:
        register_process(connection, find_host(connection, host).host_id, kind)
        yield connection


def test_nothing_is_waited_for_if_no_process_runs(connection: Connection, tmp_path: Path) -> None:
    applied = apply(connection, build_application(), home=tmp_path)
    assert applied.hosts == ("Main",)
    wait_until_taken(connection, applied.hosts, timeout=0)


def test_a_process_that_has_not_taken_the_changes_is_named(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    with registered(database), registered(database, kind=ProcessKind.HOST):
        applied = apply(connection, build_application(), home=tmp_path)
        with pytest.raises(ChangesNotTaken) as raised:
            wait_until_taken(connection, applied.hosts, timeout=0)
    here = f"(process {os.getpid()} on {socket.gethostname()})"
    assert raised.value.what == (
        f"The changes are deployed, but were not taken within 0 s by the host Main {here}, the pipeline Main {here}."
    )
    assert count(connection, "send ports") == 1


def test_a_process_that_has_ended_is_not_waited_for(database: str, connection: Connection, tmp_path: Path) -> None:
    """Its row stays until the job deletes it, but its session has ended, and so its lock is released."""
    applied = apply(connection, build_application(), home=tmp_path)
    with registered(database):
        assert len(list_running_processes(connection)) == 1
    assert count(connection, "host instances") == 1
    wait_until_taken(connection, applied.hosts, timeout=PATIENCE)
    assert list_running_processes(connection) == []


def test_the_process_of_another_host_is_not_waited_for(database: str, connection: Connection, tmp_path: Path) -> None:
    app = Application("elsewhere")
    app.host("Other")
    apply(connection, app.definition(), home=tmp_path)
    with registered(database, host="Other"):
        applied = apply(connection, build_application(), home=tmp_path)
        wait_until_taken(connection, applied.hosts, timeout=0)


def test_the_host_of_a_removed_location_is_waited_for(database: str, connection: Connection, tmp_path: Path) -> None:
    apply(connection, build_application(), home=tmp_path)
    app = Application("taken")
    app.host("Other")
    with registered(database):
        applied = apply(connection, app.definition(), home=tmp_path)
        assert applied.hosts == ("Main", "Other")
        with pytest.raises(ChangesNotTaken, match="the pipeline Main"):
            wait_until_taken(connection, applied.hosts, timeout=0)


def test_a_process_that_has_taken_a_later_change_has_taken_the_earlier_ones(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    """Two people apply at the same time, and the process reads the configuration once."""
    with closing(connect(database)) as process:
        process_id = register_process(process, find_host(process, "Main").host_id, ProcessKind.PIPELINE)
        applied = apply(connection, build_application("first"), home=tmp_path)
        failures: list[BaseException] = []

        def wait() -> None:
            with closing(connect(database)) as other:
                try:
                    wait_until_taken(other, applied.hosts, timeout=PATIENCE)
                except BaseException as error:
                    failures.append(error)

        first = threading.Thread(target=wait)
        first.start()
        apply(connection, build_application("second"), home=tmp_path)
        report_configuration(process, process_id, read_routing_version(process))
        wait_until_taken(connection, applied.hosts, timeout=0)
        first.join()
        # A report of an older version does not replace it.
        report_configuration(process, process_id, 1)
        wait_until_taken(connection, applied.hosts, timeout=0)
        deregister_process(process, process_id)
    assert failures == []
    assert count(connection, "host instances") == 0


def test_a_running_host_takes_the_changes(database: str, connection: Connection, tmp_path: Path) -> None:
    settings = HostSettings(runs_jobs=False)
    with HostInstance(database, "Main", tmp_path, as_role=True, settings=settings):
        for folder in ("first", "second"):
            applied = apply(connection, build_application(folder), home=tmp_path)
            wait_until_taken(connection, applied.hosts, timeout=PATIENCE)
            (process,) = list_running_processes(connection)
            assert process.routing_version >= read_routing_version(connection)
    assert count(connection, "host instances") == 0
