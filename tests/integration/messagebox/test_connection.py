"""A connection raises Postroom's errors, whichever way a statement goes to the server."""

from __future__ import annotations

from collections.abc import Callable

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
from postroom.messagebox.connection import Connection, connect, transaction
from postroom.messagebox.queues import call_blocking
from tests.support.box import Box


def copy(connection: Connection) -> None:
    with connection.cursor() as cursor, cursor.copy("COPY numbers FROM STDIN") as rows:
        rows.write("one\n")


def commit_twice(connection: Connection) -> None:
    """The constraint is checked at the commit."""
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
        (lambda c: call_blocking(c, b"SELECT 1/$1::integer", 0), StorageFailure),
    ],
    ids=["execute", "bind", "programming error", "executemany", "copy", "commit", "blocking call"],
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
            lambda: call_blocking(connection, b"SELECT 1"),
        ):
            with pytest.raises(MessageBoxUnavailable):
                call()


def test_a_lock_that_is_not_free_in_time_raises_lock_timeout(box: Box) -> None:
    box.connection.execute("SELECT pg_advisory_lock(42, 42)")
    with connect(box.url, server_settings={"lock_timeout": "20ms"}) as other, pytest.raises(LockTimeout):
        other.execute("SELECT pg_advisory_lock(42, 42)")


def test_a_login_without_the_right_raises_not_allowed(box: Box) -> None:
    with connect(box.url, user=box.host().role_name) as connection, pytest.raises(NotAllowed) as refused:
        connection.execute("DELETE FROM management.hosts")
    assert "permission denied" in refused.value.why
    assert "postroom role grant" in refused.value.hint
