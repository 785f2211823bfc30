"""The lock that keeps a backup and the processes that move files apart."""

from __future__ import annotations

import pytest

from postroom.errors import MessageBoxUnavailable, Unavailable
from postroom.messagebox.connection import connect
from postroom.messagebox.coordination import file_pause
from postroom.messagebox.coordination.file_pause import FilePause, lock_files, lock_files_in_transaction
from tests.support.waiting import wait_until

_SESSION = "FROM pg_stat_activity WHERE application_name = 'postroom backup pause' AND datname = current_database()"
_LAST_STATEMENT = f"SELECT query_start {_SESSION}"
_END_PAUSE = f"SELECT pg_terminate_backend(pid, 5000) {_SESSION}"


def test_files_cannot_be_moved_during_a_pause(database: str) -> None:
    pause = FilePause(database)
    pause.acquire()
    with connect(database) as connection:
        with lock_files(connection) as is_locked:
            assert not is_locked
        with connection.transaction():
            assert not lock_files_in_transaction(connection)
        pause.release()
        with lock_files(connection) as is_locked:
            assert is_locked
    pause.close()


def test_several_processes_move_files_at_the_same_time_and_a_backup_waits_for_them(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_pause, "_LOCK_TIMEOUT", "10ms")
    pause = FilePause(database)
    with connect(database) as first, connect(database) as second, lock_files(first) as one, lock_files(second) as other:
        assert (one, other) == (True, True)
        with pytest.raises(Unavailable, match="could not be locked"):
            pause.acquire()
    pause.acquire()
    pause.close()


def test_the_pause_ends_with_the_session(database: str) -> None:
    pause = FilePause(database)
    pause.acquire()
    pause.close()
    with connect(database) as connection, lock_files(connection) as is_locked:
        assert is_locked


def test_a_backup_notices_that_its_pause_has_ended(database: str) -> None:
    pause = FilePause(database)
    pause.acquire()
    with connect(database) as connection:
        connection.execute(_END_PAUSE)
        with pytest.raises(MessageBoxUnavailable):
            pause.release()
    pause.close()


def test_heartbeats_are_sent_during_a_pause(database: str) -> None:
    """PostgreSQL ends the pause of a frozen backup, and a backup may copy files for a long time."""
    pause = FilePause(database)
    pause.acquire()
    with connect(database) as connection:
        before = connection.execute(_LAST_STATEMENT).fetchone()
        wait_until(lambda: connection.execute(_LAST_STATEMENT).fetchone() != before, what="a heartbeat")
    pause.release()
    pause.close()
