from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from postroom.message import Context
from postroom.messagebox.connection import Connection, Login, connect
from postroom.messagebox.intake import inbox
from postroom.messagebox.intake.numbered_interchanges import IntakeRow, read_numbered
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.inbox_receive_adapter import InboxReceiveAdapter
from postroom.spark.receive.task import SparkReceiveTask
from postroom.spark.worker import close_worker
from tests.support.box import Box
from tests.support.inbox_location import add_inbox_location

Connect = Callable[[], Connection]
StoreInterchange = Callable[..., uuid.UUID]


@pytest.fixture
def location(box: Box) -> ReceiveLocation:
    box.add_port("Everything", "exists(Region)")
    return add_inbox_location(box)


@pytest.fixture
def login(box: Box) -> Login:
    return Login(url=box.url, user=box.host().role_name)


@pytest.fixture
def connect_as_host(login: Login) -> Iterator[Connect]:
    """Open connections as the host."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(connect(login.url, user=login.user))


@pytest.fixture
def numbering(connect_as_host: Connect, location: ReceiveLocation) -> InboxReceiveAdapter:
    return InboxReceiveAdapter(connect_as_host(), location, connect=connect_as_host)


@pytest.fixture
def task(login: Login, location: ReceiveLocation) -> Iterator[SparkReceiveTask]:
    """Return the task that Spark runs."""
    yield SparkReceiveTask(location=location, home=Path(), login=login)
    close_worker(login)


@pytest.fixture
def store_interchange(connect_as_host: Connect, location: ReceiveLocation) -> StoreInterchange:
    connection = connect_as_host()

    def now(body: bytes = b'{"region": "EU"}', interchange_id: uuid.UUID | None = None) -> uuid.UUID:
        one = interchange_id or uuid.uuid4()
        inbox.store_in_inbox(connection, location.location_id, one, Context(), [body])
        return one

    return now


def waiting(box: Box, location: ReceiveLocation) -> list[IntakeRow]:
    """Return what the stream would be given."""
    return read_numbered(box.connection, location.location_id, 0, 1 << 60)


def rows_of(*interchange_ids: uuid.UUID) -> list[IntakeRow]:
    return [IntakeRow(interchange_id=interchange_id, size=1) for interchange_id in interchange_ids]
