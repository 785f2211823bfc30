"""The connections that the worker threads of HTTP share: one that the server has closed is opened again."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from postroom.messagebox.connection import connect, read_value
from postroom.receiving.http.shared_connections import SharedConnections
from tests.support.box import Box
from tests.support.waiting import PATIENCE, wait_until


@pytest.fixture
def connections(box: Box) -> Iterator[SharedConnections]:
    connections = SharedConnections(partial(connect, box.url), 1)
    yield connections
    connections.close()


def get_session(connections: SharedConnections) -> int:
    with connections.borrow(PATIENCE) as connection:
        return int(read_value(connection, "SELECT pg_backend_pid()"))


def test_a_connection_that_the_server_has_closed_is_opened_again(box: Box, connections: SharedConnections) -> None:
    session = get_session(connections)
    box.connection.execute("SELECT pg_terminate_backend(%s)", (session,))
    wait_until(lambda: box.count_rows(f"pg_stat_activity WHERE pid = {session}") == 0, what="the end of the session")
    assert get_session(connections) != session


def test_a_working_connection_is_borrowed_without_a_statement(box: Box, connections: SharedConnections) -> None:
    session = get_session(connections)
    with connections.borrow(PATIENCE):
        pass
    assert get_session(connections) == session
    with connections.borrow(PATIENCE):
        last = box.one(f"SELECT query FROM pg_stat_activity WHERE pid = {session}")
    assert last == "SELECT pg_backend_pid()"
