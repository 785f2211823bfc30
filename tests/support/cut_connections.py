"""Connections that are cut in the middle of a publish."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from postroom.agent.publish import PublishBatch, RoutingLock
from postroom.messagebox.connection import Connection
from tests.support.box import Box


@contextmanager
def dying_before_commit(box: Box, batch_type: type[PublishBatch]) -> Iterator[None]:
    """The connection of a publish is cut after everything is written, before it commits."""
    insert, write_routes = batch_type.insert, batch_type.write_routes

    def die(connection: Connection) -> None:
        box.one("SELECT pg_terminate_backend(%s, 5000)", connection.info.backend_pid)

    def insert_and_die(batch: PublishBatch, connection: Connection) -> bool:
        if inserted := insert(batch, connection):
            die(connection)
        return inserted

    def write_and_die(batch: PublishBatch, connection: Connection, lock: RoutingLock) -> None:
        write_routes(batch, connection, lock)
        die(connection)

    with patch.multiple(batch_type, insert=insert_and_die, write_routes=write_and_die):
        yield
