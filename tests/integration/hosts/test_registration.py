"""The registration of a host instance, and the connections that it rejects."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from pathlib import Path

import pytest

from postroom.errors import NotFound, Unavailable
from postroom.hosts import HostInstance, HostSettings
from postroom.hosts.dequeue.subservice import Subservice
from postroom.message import Message
from postroom.messagebox.connection import connect
from postroom.operations.hosts import set_stopped
from tests.integration.hosts.conftest import SETTINGS, StartHost
from tests.support.box import Box, Region
from tests.support.folders import open_folder
from tests.support.recording_adapter import BlockedSend, RecordingAdapter
from tests.support.transaction_pooler import transaction_pooler
from tests.support.waiting import wait_until

_LOCK_COUNT = (
    "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()"
    " WHERE l.classid = 7002"
)


def test_a_running_instance_is_registered_and_has_its_lock(box: Box, start_host: StartHost) -> None:
    instance = start_host(RecordingAdapter())
    [found] = box.host_instances()
    assert (found.id, found.host_id, found.dead_since) == (instance.host_instance, 1, None)
    assert (found.server, found.pid) == (socket.gethostname(), os.getpid())
    assert box.one(_LOCK_COUNT) == 1
    instance.stop()
    assert box.count("host instances") == 0
    wait_until(lambda: box.one(_LOCK_COUNT) == 0, what="the server to close the session")


def test_an_instance_logs_in_as_its_host(box: Box, start_host: StartHost) -> None:
    start_host(RecordingAdapter())
    # Only of this database: a session of another test may still be ending, and its role is dropped.
    users = """SELECT DISTINCT usename FROM pg_stat_activity
                WHERE application_name = 'postroom host Default' AND datname = current_database()"""
    assert [user for (user,) in box.connection.execute(users)] == [box.host().role_name]


def test_a_stopped_instance_has_closed_all_connections(box: Box, start_host: StartHost) -> None:
    start_host(RecordingAdapter()).stop()
    connections = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name LIKE 'postroom host%%'"
    )
    wait_until(lambda: box.one(connections) == 0)


def test_an_unknown_host_is_reported_with_the_known_hosts(box: Box, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no host 'Nobody'") as raised:
        HostInstance(box.url, "Nobody", tmp_path).start()
    assert "Default" in raised.value.hint


def test_an_unavailable_server_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        HostInstance(f"postgresql://postgres@/postroom?host={tmp_path}", "Default", tmp_path).start()


def test_a_pooler_in_transaction_mode_is_rejected(box: Box) -> None:
    with open_folder() as folder, transaction_pooler(box.url, folder) as url:
        with connect(url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,), "the pooler works"
        with pytest.raises(Unavailable, match="no session of its own"):
            HostInstance(url, "Default", folder, settings=SETTINGS).start()
    assert box.count("host instances") == 0


def test_an_instance_that_cannot_start_is_deregistered(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise Unavailable("The connection was lost.")

    monkeypatch.setattr(Subservice, "set_handlers", fail)
    with pytest.raises(Unavailable, match="The connection was lost"):
        HostInstance(box.url, "Default", tmp_path, settings=SETTINGS, as_role=True).start()
    assert box.count("host instances") == 0


def test_a_session_that_changes_later_is_treated_as_lost(box: Box, start_host: StartHost) -> None:
    settings = HostSettings(runs_jobs=False, heartbeat=timedelta(milliseconds=20))
    instance = start_host(RecordingAdapter(), settings=settings)
    instance.registration._session = -1  # simulates a heartbeat that another session answered
    wait_until(lambda: instance.registration.regained_locks == 1)
    assert box.one(_LOCK_COUNT) == 1


def test_a_stopped_host_releases_its_claims_although_the_first_attempt_fails(
    box: Box, start_host: StartHost, caplog: pytest.LogCaptureFixture
) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.agent().publish([Message.of(b"", promoted={Region: "EU"}) for _ in range(20)])
    blocked = BlockedSend()
    instance = start_host(RecordingAdapter(blocked))
    wait_until(lambda: box.count("claimed") == 20, what="the claims")
    box.connection.execute("ALTER FUNCTION messagebox.release_claims_default(integer, bigint[]) RENAME TO hidden")
    set_stopped(box.connection, "Default", stopped=True)
    wait_until(lambda: "release_claims_default" in caplog.text, what="the failed attempt")
    assert not instance.registration.is_stopped
    box.connection.execute("ALTER FUNCTION messagebox.hidden(integer, bigint[]) RENAME TO release_claims_default")
    wait_until(lambda: instance.registration.is_stopped, what="the stopped host")
    assert box.count("claimed") < 20
    blocked.released.set()
