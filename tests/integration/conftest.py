from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.box import Box, open_box


@pytest.fixture
def box(database: str) -> Iterator[Box]:
    """A fresh MessageBox with one host and the orders' properties, and short ways to act on it."""
    with open_box(database) as opened:
        yield opened
