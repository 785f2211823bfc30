"""Each test runs twice: with live coroutines, and with a replay for each event."""

from __future__ import annotations

import pytest


@pytest.fixture(params=[False, True], ids=["live", "replayed"])
def crashes(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)
