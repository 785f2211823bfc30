"""The owner of a MessageBox may create roles, but does not have to be a superuser (docs/how-to/own-postgresql.md)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from postroom.message import Message
from postroom.messagebox.connection import connect
from postroom.messagebox.coordination.session_watchdog import SessionWatchdog
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.messagebox.maintenance.repair import repair_messagebox
from postroom.messagebox.migrate import migrate
from postroom.operations.backup import create_backup, read_manifest, restore_backup
from postroom.operations.ports import send_ports
from postroom.operations.roles import grant_role
from tests.support.box import Box, Region, add_test_objects, open_box
from tests.support.databases import Databases
from tests.support.waiting import wait_until


@pytest.fixture
def urls(databases: Databases) -> Iterator[list[str]]:
    """Yield the URLs of two empty databases with the login of their owner."""
    # A name of its own: the roles of a test are dropped with its databases, but not in the order of their grants.
    owner = f"integration_{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        urls = [stack.enter_context(databases.clone("template0")) for _ in range(2)]
        with connect(urls[0]) as superuser:
            superuser.execute(f"CREATE ROLE {owner} LOGIN CREATEROLE")
            superuser.execute(f"GRANT pg_signal_backend, pg_read_all_stats TO {owner}")
        for url in urls:
            with connect(url) as superuser:
                superuser.execute(f"ALTER DATABASE {superuser.info.dbname} OWNER TO {owner}")
        yield [make_conninfo(url, user=owner) for url in urls]


@pytest.fixture
def owned(urls: list[str]) -> Iterator[Box]:
    """Yield a MessageBox of the owner with two ports and a message."""
    migrate(urls[0])
    with connect(urls[0]) as connection:
        add_test_objects(connection)
    with open_box(urls[0]) as box:
        for name in ("Audit", "Europe"):
            box.add_port(name, "Orders.Region == 'EU'")
        box.agent().publish([Message.of(b"an order", promoted={Region: "EU"})])
        yield box


def test_the_owner_publishes_operates_and_cleans_up(owned: Box) -> None:
    owned.connection.execute("CREATE ROLE main_service LOGIN")
    grant_role(owned.connection, "host:Default", "main_service")
    send_ports.stop(owned.connection, "Europe")
    send_ports.start(owned.connection, "Europe")
    with connect(owned.url, user="main_service") as host:
        owned.agent(connection=host).publish([Message.of(b"another", promoted={Region: "EU"})])
        assert [run.error for run in run_all_jobs_once(host) if run.error] == []
    owned.connection.execute("SELECT terminate_instances(array_agg(instance_id)) FROM instances")
    run_all_jobs_once(owned.connection)
    assert owned.count("messages") == 0
    assert repair_messagebox(owned.connection) == []
    assert check(owned.connection) == []


def test_a_host_ends_a_frozen_session_with_the_rights_of_the_owner(owned: Box) -> None:
    role = owned.host().role_name
    watchdog = SessionWatchdog(lambda: connect(owned.url, user=role, application_name="postroom host Default"))
    watchdog.loop.start()
    try:
        with closing(connect(owned.url, user=role, application_name="postroom host Default")) as frozen:
            frozen.execute("BEGIN")
            frozen.execute("SELECT pg_advisory_xact_lock_shared(7001, 0)")
            session = frozen.info.backend_pid
            is_ended = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %s)"
            wait_until(lambda: owned.one(is_ended, session), what="the end of the session")
    finally:
        watchdog.loop.stop()
        watchdog.loop.join()
        watchdog.close()


def test_the_owner_restores_a_backup(owned: Box, urls: list[str], tmp_path: Path) -> None:
    create_backup(owned.url, tmp_path / "home", tmp_path / "backup")
    restore_backup(urls[1], tmp_path / "home", tmp_path / "backup", read_manifest(tmp_path / "backup"))
    with open_box(urls[1]) as restored:
        assert check(restored.connection) == []
        assert restored.queued() == {"Audit": 1, "Europe": 1}
        with connect(restored.url, user=restored.host().role_name) as host:
            restored.agent(connection=host).publish([Message.of(b"another", promoted={Region: "EU"})])
        assert restored.queued() == {"Audit": 2, "Europe": 2}
