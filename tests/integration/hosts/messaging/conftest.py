from __future__ import annotations

from collections.abc import Iterator

import pytest

from postroom.messagebox.connection import connect
from tests.integration.hosts.conftest import StartHost
from tests.support.box import Box
from tests.support.quotes import Quotes


@pytest.fixture
def quotes(box: Box, start_host: StartHost) -> Iterator[Quotes]:
    with connect(box.url, user=box.host().role_name) as connection:
        yield Quotes(box, start_host, connection)
