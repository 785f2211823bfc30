from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from postroom.hosts import HostInstance
from postroom.messagebox.connection import Connection, connect
from tests.integration.hosts.conftest import SETTINGS
from tests.support.deployment import deploy
from tests.support.lookups import count_waiting, customers_app, publish_customer
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

#: Publishes a customer, and waits until it is applied.
StoreCustomer = Callable[[str, bytes | None], None]


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    with connect(database) as opened:
        deploy(opened, customers_app())
        yield opened


@pytest.fixture
def recorder() -> RecordingAdapter:
    return RecordingAdapter()


@pytest.fixture
def instance(
    database: str, connection: Connection, tmp_path: Path, recorder: RecordingAdapter
) -> Iterator[HostInstance]:
    """Yield a host instance with the login of its host."""
    with HostInstance(
        database, "Main", tmp_path, as_role=True, settings=SETTINGS, build_adapter=recorder.build
    ) as started:
        yield started


@pytest.fixture
def store(connection: Connection, instance: HostInstance) -> StoreCustomer:
    def store(key: str, body: bytes | None) -> None:
        publish_customer(connection, key, body)
        wait_until(lambda: count_waiting(connection) == 0)

    return store
