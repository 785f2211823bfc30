from __future__ import annotations

from collections.abc import Iterator

import pytest

from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.subscriptions import ServiceSubscriptions
from tests.support.box import Box
from tests.support.publishers import PublishPath


@pytest.fixture(params=list(PublishPath), ids=lambda publish_path: publish_path.value)
def publish_path(request: pytest.FixtureRequest) -> PublishPath:
    publish_path: PublishPath = request.param
    return publish_path


@pytest.fixture
def host(box: Box) -> Iterator[Connection]:
    """Yield a connection with the login of the host, as services and publishers have it."""
    with connect(box.url, user=box.host().role_name) as connection:
        yield connection


@pytest.fixture
def subscriptions(box: Box) -> ServiceSubscriptions:
    return ServiceSubscriptions(box.host(), ServiceClass.ORCHESTRATIONS)
