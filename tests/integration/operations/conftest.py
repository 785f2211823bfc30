from __future__ import annotations

from collections.abc import Iterator

import pytest

from postroom.messagebox.connection import Connection, connect


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    """Return the owner's connection to an empty MessageBox."""
    with connect(database) as opened:
        yield opened
