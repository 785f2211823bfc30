from __future__ import annotations

from collections.abc import Iterator

import pytest

from postroom.messagebox.connection import Connection, connect


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    """The owner's connection to a fresh MessageBox, with nothing applied to it."""
    with connect(database) as opened:
        yield opened
