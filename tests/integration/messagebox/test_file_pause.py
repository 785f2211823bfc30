"""The lock that keeps a backup and the processes that move files apart."""

from __future__ import annotations

import pytest

from postroom.errors import MessageBoxUnavailable, Unavailable
from postroom.messagebox import file_pause
from postroom.messagebox.connection import connect
from postroom.messagebox.file_pause import FilePause, lock_files, lock_files_in_transaction
from tests.support.waiting import wait_until


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


def test_postgresql_ends_the_pause_of_a_frozen_backup(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_pause, "_MAX_SILENCE_SECONDS", 1)
    monkeypatch.setattr(file_pause, "_HEARTBEAT_SECONDS", 0)
    pause = FilePause(database)
    pause.acquire()
    with connect(database) as connection:

        def can_be_moved() -> bool:
            with lock_files(connection) as is_locked:
                return is_locked

        wait_until(can_be_moved, what="the end of the pause")
    with pytest.raises(MessageBoxUnavailable):
        pause.keep()
    pause.close()


def test_a_heartbeat_is_sent_only_when_it_is_due(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pause = FilePause(database)
    pause.acquire()
    pause.close()
    pause.keep()
    monkeypatch.setattr(file_pause, "_HEARTBEAT_SECONDS", 0)
    with pytest.raises(MessageBoxUnavailable):
        pause.keep()
