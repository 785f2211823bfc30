"""Cut the connection of a publish before it commits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from postroom.agent.publish import PublishBatch
from postroom.agent.routing.routes import OrderedRoutes
from postroom.messagebox.connection import Connection
from postroom.messagebox.routing import RoutingLock
from tests.support.box import Box


@contextmanager
def cut_before_commit(box: Box, batch_type: type[PublishBatch]) -> Iterator[None]:
    """Cut the connection of a publish after it has written everything and before it commits."""
    insert, write_routes = batch_type.insert_in_one_statement, batch_type.write_routes

    def cut(connection: Connection) -> None:
        box.one("SELECT pg_terminate_backend(%s, 5000)", connection.info.backend_pid)

    def insert_and_cut(batch: PublishBatch, connection: Connection) -> bool:
        if inserted := insert(batch, connection):
            cut(connection)
        return inserted

    def write_and_cut(batch: PublishBatch, connection: Connection, lock: RoutingLock, ordered: OrderedRoutes) -> None:
        write_routes(batch, connection, lock, ordered)
        ordered.write(connection)
        cut(connection)

    with patch.multiple(batch_type, insert_in_one_statement=insert_and_cut, write_routes=write_and_cut):
        yield
