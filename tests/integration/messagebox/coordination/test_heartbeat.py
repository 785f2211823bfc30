"""A session with locks ends when its process freezes, and lives while its process does something else."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from datetime import datetime

from postroom.messagebox.connection import connect
from postroom.messagebox.coordination.heartbeat import keep_alive
from tests.support.box import Box
from tests.support.waiting import wait_until

_TRY_LOCK = "SELECT pg_try_advisory_lock(42, 42)"
_LAST_STATEMENT = "SELECT query_start FROM pg_stat_activity WHERE pid = %s"


def hold_lock(url: str) -> None:
    with connect(url) as connection:
        connection.execute(_TRY_LOCK)
        keep_alive(connection)
        time.sleep(3600)


def test_the_lock_of_a_frozen_process_is_released(box: Box) -> None:
    process = multiprocessing.get_context("spawn").Process(target=hold_lock, args=(box.url,))
    process.start()
    try:
        locked = "SELECT pid FROM pg_locks WHERE classid = 42 AND objid = 42 AND granted"
        session = wait_until(lambda: box.one(locked), what="the lock of the other process")
        wait_until(lambda: box.one("SELECT state = 'idle' FROM pg_stat_activity WHERE pid = %s", session))
        assert not box.one(_TRY_LOCK)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        wait_until(lambda: box.one(_TRY_LOCK), what="the lock")
    finally:
        process.kill()
        process.join()


def test_heartbeats_are_sent_while_the_owner_of_the_lock_is_busy(box: Box) -> None:
    with connect(box.url) as busy, connect(box.url) as in_transaction:
        sessions = [session.info.backend_pid for session in (busy, in_transaction)]
        for connection in (busy, in_transaction):
            keep_alive(connection)
        in_transaction.execute("BEGIN")
        in_transaction.execute("CREATE TEMP TABLE work ON COMMIT DROP AS SELECT 1")

        def last_statements() -> list[datetime]:
            return [box.one(_LAST_STATEMENT, session) for session in sessions]

        before = last_statements()
        wait_until(lambda: all(now > then for now, then in zip(last_statements(), before, strict=True)))
        assert in_transaction.execute("SELECT count(*) FROM work").fetchone() == (1,), "the transaction continues"


def test_a_heartbeat_does_not_interrupt_a_copy(box: Box) -> None:
    with connect(box.url) as idle, connect(box.url) as copying:
        for connection in (copying, idle):
            keep_alive(connection)
        copying.execute("CREATE TEMP TABLE numbers (number integer)")
        with copying.cursor() as cursor, cursor.copy("COPY numbers FROM STDIN") as rows:
            before = box.one(_LAST_STATEMENT, idle.info.backend_pid)
            wait_until(lambda: box.one(_LAST_STATEMENT, idle.info.backend_pid) > before, what="a heartbeat")
            rows.write("1\n")
        assert copying.execute("SELECT number FROM numbers").fetchone() == (1,)
