"""A client that is frozen inside a transaction must not stop the others."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from psycopg import Cursor, pq

from postroom.errors import MessageBoxUnavailable
from postroom.message import Message
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.coordination.session_watchdog import SessionWatchdog
from postroom.operations.ports import send_ports
from tests.support.box import Box, Region
from tests.support.unchecked_rows import COPY_PARTS
from tests.support.waiting import wait_until


@contextmanager
def open_session(box: Box) -> Iterator[Connection]:
    """A session of a host whose client sends nothing after the test's last statement, as if it were frozen."""
    connection = connect(box.url, user=box.host().role_name, application_name="postroom host Default")
    try:
        yield connection
    finally:
        connection.close()


@pytest.fixture
def watchdog(box: Box) -> Iterator[SessionWatchdog]:
    role = box.host().role_name
    watchdog = SessionWatchdog(lambda: connect(box.url, user=role, application_name="postroom host Default"))
    watchdog.loop.start()
    yield watchdog
    watchdog.loop.stop()
    watchdog.loop.join()
    watchdog.close()


def lock_routing(connection: Connection) -> None:
    connection.execute("BEGIN")
    connection.execute("SELECT lock_routing()")


def begin_copy(cursor: Cursor[tuple[object, ...]]) -> None:
    """Start a COPY and send no row."""
    cursor.connection.pgconn.send_query(COPY_PARTS.encode())
    result = cursor.connection.pgconn.get_result()
    assert result is not None
    assert result.status == pq.ExecStatus.COPY_IN


def is_ended(box: Box, session: int) -> bool:
    return bool(box.one("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %s)", session))


def wait_for_end(box: Box, session: int) -> None:
    """Wait for the end of a session. Its locks are released before it is no longer listed."""
    wait_until(lambda: is_ended(box, session), what="the end of the session")


def publish(box: Box) -> None:
    box.agent().publish([Message.of(b"1", promoted={Region: "EU"})])


def test_a_client_that_is_frozen_with_the_routing_lock_is_ended_by_postgresql(box: Box) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    with open_session(box) as frozen:
        session = frozen.info.backend_pid
        lock_routing(frozen)
        send_ports.stop(box.connection, "Europe")
        wait_for_end(box, session)
        publish(box)


def test_a_client_that_is_frozen_in_a_copy_is_ended_by_the_watchdog(box: Box, watchdog: SessionWatchdog) -> None:
    """PostgreSQL has no timeout for a session that waits for COPY data."""
    box.add_port("Europe", "Orders.Region == 'EU'")
    with open_session(box) as frozen:
        session = frozen.info.backend_pid
        lock_routing(frozen)
        begin_copy(frozen.cursor())
        send_ports.stop(box.connection, "Europe")
        wait_for_end(box, session)
        publish(box)


def test_a_client_that_is_frozen_with_locked_rows_is_ended_when_another_session_waits_for_them(
    box: Box, watchdog: SessionWatchdog
) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    publish(box)
    with open_session(box) as frozen:
        session = frozen.info.backend_pid
        claim = uuid.uuid4()
        frozen.execute("SELECT dequeue_messages_default(%s, 4711, 'messaging_in_process', 2)", (claim,))
        seq = next(row.seq for row in box.queued_rows() if row.claim_id == claim)
        frozen.execute("BEGIN")
        frozen.execute("SELECT complete_messages_default(%s, ARRAY[%s::bigint])", (claim, seq))
        assert box.one("SELECT dead_processes_cleanup()") == 1, "the completion was rolled back"
        wait_for_end(box, session)


def test_a_client_that_blocks_no_other_session_is_not_ended(box: Box, watchdog: SessionWatchdog) -> None:
    with open_session(box) as idle, open_session(box) as frozen:
        idle.execute("BEGIN")
        idle.execute("SELECT 1")
        lock_routing(frozen)
        begin_copy(frozen.cursor())
        wait_for_end(box, frozen.info.backend_pid)
        assert idle.execute("SELECT 1").fetchone() == (1,)


def test_a_session_that_works_is_not_ended(box: Box, watchdog: SessionWatchdog) -> None:
    """Its activity differs from poll to poll."""
    with open_session(box) as working, open_session(box) as frozen:
        lock_routing(working)
        lock_routing(frozen)
        begin_copy(frozen.cursor())
        while not is_ended(box, frozen.info.backend_pid):
            working.execute("SELECT 1")
        assert working.execute("SELECT 1").fetchone() == (1,)
        working.execute("COMMIT")


def test_a_host_session_cannot_end_a_session_that_is_not_stalled(box: Box) -> None:
    with open_session(box) as host, open_session(box) as other:
        assert host.execute("SELECT terminate_stalled_session(%s, '')", (other.info.backend_pid,)).fetchone() == (
            False,
        )
        assert other.execute("SELECT 1").fetchone() == (1,)


def test_a_frozen_publisher_reports_that_the_messagebox_is_unavailable(box: Box) -> None:
    with open_session(box) as frozen:
        lock_routing(frozen)
        wait_for_end(box, frozen.info.backend_pid)
        with pytest.raises(MessageBoxUnavailable):
            frozen.execute("COMMIT")
