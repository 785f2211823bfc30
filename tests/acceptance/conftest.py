from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.installation import Installation


@pytest.fixture
def installation(tmp_path: Path, database: str) -> Iterator[Installation]:
    """Yield a new home folder with a new MessageBox. `postroom check` has to pass after the test (ACC-82)."""
    with Installation(tmp_path, database) as opened:
        yield opened
        opened.run("check")
