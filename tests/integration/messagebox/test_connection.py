"""A connection raises the errors of Postroom for every kind of statement."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from postroom.errors import (
    DatabaseError,
    DuplicateKey,
    LockTimeout,
    MessageBoxUnavailable,
    NotAllowed,
    PostroomError,
    StorageFailure,
)
from postroom.messagebox.connection import (
    Connection,
    call_blocking,
    connect,
    operator_transaction,
    read_blocking,
    transaction,
)
from tests.support.box import Box
from tests.support.waiting import wait_until

_WAITS_FOR_LOCK = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s"


def copy(connection: Connection) -> None:
    with connection.cursor() as cursor, cursor.copy("COPY numbers FROM STDIN") as rows:
        rows.write("one\n")


def commit_twice(connection: Connection) -> None:
    """Violate a constraint that is checked at the commit."""
    with connection.transaction():
        connection.execute("INSERT INTO numbers VALUES (1), (1)")


@pytest.fixture
def connection(box: Box) -> Connection:
    box.connection.execute("CREATE TEMP TABLE numbers (number integer, UNIQUE (number) DEFERRABLE INITIALLY DEFERRED)")
    return box.connection


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (lambda c: c.execute("SELECT 1/0"), StorageFailure),
        (lambda c: c.execute("SELECT %s::text", ("\0",)), StorageFailure),
        (lambda c: c.execute("SELECT nothing"), DatabaseError),
        (lambda c: c.cursor().executemany("INSERT INTO numbers VALUES (%s)", [(1,), ("x",)]), StorageFailure),
        (copy, StorageFailure),
        (commit_twice, DuplicateKey),
        (lambda c: call_blocking(c, "SELECT 1/%s::integer", 0), StorageFailure),
        (lambda c: call_blocking(c, "SELECT %s::text", "cut\0off"), StorageFailure),
    ],
    ids=["execute", "bind", "programming error", "executemany", "copy", "commit", "blocking call", "blocking bind"],
)
def test_an_error_is_translated(
    connection: Connection, work: Callable[[Connection], object], expected: type[PostroomError]
) -> None:
    with pytest.raises(expected) as raised:
        work(connection)
    assert type(raised.value) is expected
    assert connection.execute("SELECT 1").fetchone() == (1,), "the connection can be used"


def test_a_lost_connection_is_unavailable_now_and_at_the_next_call(box: Box) -> None:
    with connect(box.url) as connection:
        box.one("SELECT pg_terminate_backend(%s, 5000)", connection.info.backend_pid)
        with pytest.raises(MessageBoxUnavailable):
            connection.execute("SELECT 1")
        assert connection.closed
        for call in (
            lambda: connection.execute("SELECT 1"),
            lambda: transaction(connection, lambda c: None),
            lambda: call_blocking(connection, "SELECT 1"),
        ):
            with pytest.raises(MessageBoxUnavailable):
                call()


@pytest.mark.parametrize(
    "work", [lambda c: c.execute("SELECT 1"), lambda c: call_blocking(c, "SELECT 1")], ids=["execute", "blocking call"]
)
def test_a_connection_that_is_cut_without_a_message_is_unavailable(
    box: Box, work: Callable[[Connection], object]
) -> None:
    """PostgreSQL crashes, or a network fails: the server says nothing."""
    with connect(box.url) as connection:
        with socket.socket(fileno=os.dup(connection.fileno())) as client:
            client.shutdown(socket.SHUT_RDWR)
        with pytest.raises(MessageBoxUnavailable):
            work(connection)
        assert connection.closed


def test_the_server_detects_a_client_machine_that_is_gone(box: Box) -> None:
    """A Unix socket has no keepalives, but the setting of the session is the same as for other machines."""
    with connect(box.url) as connection:
        settings = connection.execute(
            "SELECT name, reset_val FROM pg_settings WHERE name LIKE 'tcp_keepalives%' AND source = 'client'"
        ).fetchall()
    assert dict(settings) == {
        "tcp_keepalives_idle": "5",
        "tcp_keepalives_interval": "2",
        "tcp_keepalives_count": "3",
    }


def test_a_lock_that_is_not_free_in_time_raises_lock_timeout(box: Box) -> None:
    box.connection.execute("SELECT pg_advisory_lock(42, 42)")
    with connect(box.url, server_settings={"lock_timeout": "20ms"}) as other, pytest.raises(LockTimeout):
        other.execute("SELECT pg_advisory_lock(42, 42)")


def test_a_login_without_the_privilege_raises_not_allowed(box: Box) -> None:
    with connect(box.url, user=box.host().role_name) as connection, pytest.raises(NotAllowed) as refused:
        connection.execute("DELETE FROM messagebox.hosts")
    assert "permission denied" in refused.value.why
    assert "postroom role grant" in refused.value.hint


def test_publishers_continue_while_an_operator_waits_for_the_routing_lock(box: Box) -> None:
    with connect(box.url) as publisher, connect(box.url) as operator, connect(box.url) as other:
        publisher.execute("BEGIN")
        publisher.execute("SELECT pg_advisory_xact_lock_shared(7001, 0)")
        with ThreadPoolExecutor() as threads:
            change = threads.submit(operator_transaction, operator, lambda c: c.execute("SELECT change_routing()"))
            wait_until(lambda: box.one(_WAITS_FOR_LOCK, operator.info.backend_pid), what="a waiting operator")
            other.execute("SELECT lock_routing()")
            publisher.execute("COMMIT")
            change.result()


def test_an_operator_learns_which_session_holds_the_routing_lock(box: Box) -> None:
    with connect(box.url, application_name="postroom host Orders") as publisher:
        publisher.execute("BEGIN")
        publisher.execute("SELECT pg_advisory_xact_lock_shared(7001, 0)")
        with pytest.raises(LockTimeout) as raised:
            operator_transaction(box.connection, lambda c: c.execute("SELECT change_routing()"), lock_seconds=0.2)
        assert "other sessions held locks for 0.2 s" in raised.value.what
        assert "postroom host Orders (user " in raised.value.why
        assert f"session {publisher.info.backend_pid})" in raised.value.why


def test_an_operation_inside_a_transaction_waits_no_longer_than_the_outer_one(box: Box) -> None:
    with connect(box.url) as publisher:
        publisher.execute("BEGIN")
        publisher.execute("SELECT pg_advisory_xact_lock_shared(7001, 0)")
        attempts: list[int] = []

        def change(connection: Connection) -> None:
            attempts.append(1)
            connection.execute("SELECT change_routing()")

        box.connection.execute("BEGIN")
        box.connection.execute("SET LOCAL lock_timeout = '20ms'")
        with pytest.raises(LockTimeout):
            operator_transaction(box.connection, change)
        box.connection.execute("ROLLBACK")
        assert len(attempts) == 1


def test_a_blocking_call_passes_values_of_all_types_unchanged(connection: Connection) -> None:
    texts = ["", None, "a b", 'quote " and \\ backslash', "{braces},comma", "NULL", "Zoë"]
    numbers, name = [1, -2], uuid.uuid4()
    query = (
        "SELECT %s::text[] = ARRAY['', NULL, 'a b', E'quote \" and \\\\ backslash', '{braces},comma', 'NULL', 'Zoë'],"
        " %s::bigint[] = '{1,-2}', %b::bytea = '\\x00ff27'::bytea, %s::text IS NULL, %s::bool, %s = %s::uuid[]"
    )
    arguments = (texts, numbers, b"\x00\xff'", None, True, [name], [str(name)])
    assert read_blocking(connection, query, tuple, *arguments) == [(True,) * 6]


def test_a_blocking_call_is_prepared_again_after_the_driver_has_dropped_it(box: Box) -> None:
    def list_prepared(connection: Connection) -> list[str]:
        rows = connection.execute("SELECT statement FROM pg_prepared_statements ORDER BY 1", prepare=False)
        return [statement for (statement,) in rows]

    def call(connection: Connection) -> None:
        [(number,)] = read_blocking(connection, "SELECT 1 + %s::integer", tuple, 1)
        assert number == 2

    with connect(box.url) as connection:
        for _ in range(5):
            call(connection)
        assert list_prepared(connection) == ["SELECT 1 + $1::integer"]
        connection.execute("SELECT 3", prepare=True)
        with suppress(StorageFailure), connection.transaction():
            call(connection)
            connection.execute("SELECT 1/0")
        assert list_prepared(connection) == []
        for _ in range(2):
            call(connection)
        assert list_prepared(connection) == ["SELECT 1 + $1::integer"]


def test_a_blocking_call_is_prepared_again_after_its_function_was_replaced(box: Box) -> None:
    """A host may run while the MessageBox is upgraded."""
    create = "CREATE FUNCTION messagebox.replaced() RETURNS TABLE (number {0}) LANGUAGE sql AS 'SELECT 1::{0}'"
    box.connection.execute(create.format("integer"))
    with connect(box.url) as connection:
        for _ in range(5):
            assert read_blocking(connection, "SELECT * FROM replaced()", tuple) == [(1,)]
        box.connection.execute("DROP FUNCTION messagebox.replaced()")
        box.connection.execute(create.format("text"))
        names = "SELECT name FROM pg_prepared_statements WHERE statement = 'SELECT * FROM replaced()'"
        before = set(connection.execute(names).fetchall())
        for _ in range(4):
            assert read_blocking(connection, "SELECT * FROM replaced()", tuple) == [("1",)]
        assert len(set(connection.execute(names).fetchall()) - before) == 1
