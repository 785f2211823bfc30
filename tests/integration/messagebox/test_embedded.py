"""The embedded PostgreSQL with real processes: start, stop, crash and clean-up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest

from postroom.cli.options import CommandOptions
from postroom.errors import Unavailable
from postroom.messagebox.embedded import EmbeddedServer, binaries
from tests.conftest import NOT_DURABLE, SMALL
from tests.support.folders import open_folder
from tests.support.waiting import wait_until

QUICK = NOT_DURABLE | SMALL

# Uses the server in the given folder until its standard input ends.
USER = """
import sys
from pathlib import Path
from postroom.messagebox.embedded import EmbeddedServer, binaries
with EmbeddedServer(Path(sys.argv[1]), settings={"fsync": "off", "shared_buffers": "128MB"}) as server:
    print(server.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder
        assert not processes_in(folder), "a PostgreSQL was left behind"


def processes_in(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()).is_relative_to(folder):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


@contextmanager
def start_user_process(data: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", USER, str(data)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def read_pid(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def insert_number(server: EmbeddedServer, number: int) -> None:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS numbers (number int)")
        connection.execute("INSERT INTO numbers VALUES (%s)", (number,))


def read_numbers(server: EmbeddedServer) -> list[int]:
    with psycopg.connect(server.url()) as connection:
        return [number for (number,) in connection.execute("SELECT number FROM numbers ORDER BY 1")]


def is_busy(server: EmbeddedServer, backend: int) -> bool:
    with psycopg.connect(server.url()) as connection:
        found = connection.execute("SELECT state FROM pg_stat_activity WHERE pid = %s", (backend,)).fetchone()
    return found == ("active",)


def test_committed_data_survives_a_restart(folder: Path) -> None:
    server = EmbeddedServer(folder / "postgres")
    assert server.pid is None
    server.start()
    insert_number(server, 1)
    server.stop()
    assert server.pid is None
    assert not processes_in(folder)
    with server:
        assert read_numbers(server) == [1]


def test_the_server_is_durable_and_closed_to_other_users(folder: Path) -> None:
    with EmbeddedServer(folder / "postgres") as server, psycopg.connect(server.url()) as connection:
        expected = {
            "fsync": "on",
            "synchronous_commit": "on",
            "full_page_writes": "on",
            "listen_addresses": "",
            "unix_socket_permissions": "0700",
            "server_encoding": "UTF8",
            "max_wal_size": "1GB",
            "min_wal_size": "80MB",
            "checkpoint_timeout": "5min",
            "max_connections": "200",
            "TimeZone": "UTC",
        }
        found = {name: connection.execute("SELECT current_setting(%s)", (name,)).fetchone() for name in expected}
        assert {name: row and row[0] for name, row in found.items()} == expected
        collation = connection.execute("SELECT datcollate FROM pg_database WHERE datname = current_database()")
        assert collation.fetchone() == ("C",)
        rules = connection.execute("SELECT DISTINCT type, auth_method FROM pg_hba_file_rules ORDER BY 1, 2").fetchall()
        assert rules == [("host", "reject"), ("local", "trust")]


@pytest.mark.parametrize(
    "name",
    ["with a space", "käse, 'quoted' & \"odd\" $HOME @%41", "long" * 40],
    ids=["space", "odd characters", "longer than a socket's address"],
)
def test_the_data_folder_can_have_any_path(folder: Path, name: str) -> None:
    with EmbeddedServer(folder / name / "postgres", settings=QUICK) as server:
        insert_number(server, 7)
        assert read_numbers(server) == [7]
        with psycopg.connect(server.url()) as connection:
            sockets = connection.execute("SELECT current_setting('unix_socket_directories')").fetchone()
        assert sockets is not None
    assert not Path(sockets[0]).exists()


def test_a_killed_server_is_started_again_at_the_same_address(folder: Path) -> None:
    server = EmbeddedServer(folder / "postgres", settings=SMALL)
    with server:
        insert_number(server, 1)
        url, killed = server.url(), server.pid
        assert killed is not None
        # A busy backend outlives the killed server, and a new server does not start while the backend runs.
        with closing(psycopg.connect(url, autocommit=True)) as busy:
            busy.pgconn.send_query(b"DO 'BEGIN LOOP NULL; END LOOP; END'")
            wait_until(lambda: is_busy(server, busy.info.backend_pid))
            os.kill(killed, signal.SIGKILL)
            wait_until(lambda: server.pid is None, what="the death of the server")
            assert psutil.Process(busy.info.backend_pid).is_running()
            server.start()
        assert server.pid not in (None, killed)
        assert server.url() == url
        assert read_numbers(server) == [1]


def test_a_process_with_the_reused_pid_of_a_dead_server_is_not_mistaken_for_it(folder: Path) -> None:
    server = EmbeddedServer(folder / "postgres", settings=QUICK)
    with server:
        pass
    pid_file = folder / "postgres" / "pgdata" / "postmaster.pid"
    pid_file.write_text(f"{os.getpid()}\n{pid_file.parent}\n0\n5432\n{pid_file.parent}\n\n0 0\nready\n")
    assert server.pid is None
    with server:
        insert_number(server, 1)


def test_concurrent_users_share_one_server_which_the_last_user_stops(folder: Path) -> None:
    data = folder / "postgres"
    with start_user_process(data) as first, start_user_process(data) as second, start_user_process(data) as third:
        users = [first, second, third]
        pids = {read_pid(user) for user in users}
        assert len(pids) == 1
        for user in users:
            assert {process.pid for process in processes_in(folder)} >= pids
            user.communicate()
            assert user.returncode == 0
        assert not processes_in(folder)


def test_the_server_runs_on_when_the_process_that_started_it_has_ended(folder: Path) -> None:
    data = folder / "postgres"
    attached = EmbeddedServer(data, settings=QUICK)
    with start_user_process(data) as starter:
        started = read_pid(starter)
        attached.start()
        starter.communicate()
    assert attached.pid == started
    insert_number(attached, 1)
    attached.stop()
    assert not processes_in(folder)


def test_the_server_shuts_down_when_the_process_that_started_it_is_killed(folder: Path) -> None:
    with start_user_process(folder / "postgres") as starter:
        assert psutil.pid_exists(read_pid(starter))
        starter.kill()
        wait_until(lambda: not processes_in(folder), what="the end of the server")
    with EmbeddedServer(folder / "postgres", settings=QUICK) as server:
        insert_number(server, 1)


def test_a_failed_start_reports_the_reason_and_the_log(folder: Path) -> None:
    server = EmbeddedServer(folder / "postgres", settings=QUICK | {"shared_buffers": "1 potato"})
    with pytest.raises(Unavailable) as error:
        server.start()
    assert "did not start" in error.value.what
    assert "1 potato" in error.value.why
    assert str(folder / "postgres" / "log") in error.value.hint


def test_the_error_names_a_folder_that_cannot_be_created(folder: Path) -> None:
    (folder / "file").write_text("in the way")
    with pytest.raises(Unavailable, match="cannot be used") as error:
        EmbeddedServer(folder / "file" / "postgres").start()
    assert str(folder / "file") in error.value.why


def test_an_interrupted_initialisation_is_repeated(folder: Path) -> None:
    (folder / "postgres" / "pgdata.new").mkdir(parents=True)
    (folder / "postgres" / "pgdata.new" / "PG_VERSION").write_text("half")
    with EmbeddedServer(folder / "postgres", settings=QUICK) as server:
        insert_number(server, 1)


def test_a_database_of_another_version_is_rejected(folder: Path) -> None:
    server = EmbeddedServer(folder / "postgres", settings=QUICK)
    with server:
        pass
    (folder / "postgres" / "pgdata" / "PG_VERSION").write_text("17\n")
    with pytest.raises(Unavailable, match="created by PostgreSQL 17"):
        server.start()


def test_environment_variables_of_postgresql_clients_are_ignored(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PGPORT": "1", "PGDATA": "/nowhere", "PGOPTIONS": "-c nonsense=1", "LC_ALL": "xx_YY"}.items():
        monkeypatch.setenv(name, value)
    with EmbeddedServer(folder / "postgres", settings=QUICK) as server:
        for name in ("PGPORT", "PGDATA", "PGOPTIONS"):
            monkeypatch.delenv(name)
        insert_number(server, 1)


def test_a_folder_that_the_server_account_cannot_enter_keeps_its_mode(folder: Path) -> None:
    closed, store = folder / "closed", folder / "store"
    closed.mkdir(mode=0o700)
    server = EmbeddedServer(closed / "postgres", settings=QUICK, store=store)
    with server:
        insert_number(server, 1)
    assert closed.stat().st_mode & 0o777 == 0o700
    # Root runs PostgreSQL as another account, which cannot enter. Other users run it with their own account.
    stored_elsewhere = [*store.glob("*/pgdata")] if store.exists() else []
    assert len(stored_elsewhere) == (1 if os.geteuid() == 0 else 0)
    assert (closed / "postgres" / "pgdata").exists() == (os.geteuid() != 0)
    with server:
        assert read_numbers(server) == [1]
    server.destroy()
    assert not (closed / "postgres").exists()
    assert not (store.exists() and [*store.glob("*/pgdata")])


def test_the_url_is_available_only_after_a_start(folder: Path) -> None:
    server = EmbeddedServer(folder / "postgres")
    with pytest.raises(Unavailable, match="not been started"):
        server.url()
    server.stop()
    assert not (folder / "postgres").exists()


def test_programs_that_the_server_account_cannot_run_are_copied_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = folder / "store"
    monkeypatch.setattr(binaries, "_is_usable", lambda found: found.folder.is_relative_to(store))
    for _ in range(2):
        with EmbeddedServer(folder / "postgres", settings=QUICK, store=store) as server:
            insert_number(server, 1)
            assert server.pid is not None
            programs = Path(psutil.Process(server.pid).exe())
    # Only root runs the programs as another account.
    assert programs.is_relative_to(store) == (os.geteuid() == 0)
    assert len([*store.glob("*")]) == (1 if os.geteuid() == 0 else 0)


def test_a_command_finds_the_messagebox_of_its_home(home: Path) -> None:
    with CommandOptions(home=home).messagebox(create=True) as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept ()")
    with CommandOptions(home=home).messagebox() as url, psycopg.connect(url) as connection:
        assert connection.execute("SELECT to_regclass('kept')").fetchone() == ("kept",)
    with CommandOptions(home=home, database="postgresql://elsewhere/").messagebox() as url:
        assert url == "postgresql://elsewhere/"
