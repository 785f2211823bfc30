from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from postroom.hosts import HostInstance, HostSettings
from tests.support.box import Box
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import PATIENCE

#: Jobs run only where a test runs them, so that the test can check the state before.
SETTINGS = HostSettings(
    runs_jobs=False,
    memory_queue=100,
    stop_within=timedelta(seconds=PATIENCE),
    answer_within=timedelta(seconds=0.2),
)

StartHost = Callable[..., HostInstance]


@pytest.fixture
def start_host(box: Box, tmp_path: Path) -> Iterator[StartHost]:
    """Return a function that starts a host instance with the login of its host. All ports use one recording adapter."""
    with ExitStack() as stack:

        def start(recorder: RecordingAdapter, name: str = "Default", **given: Any) -> HostInstance:
            arguments: dict[str, Any] = {"settings": SETTINGS, "as_role": True, **given}
            instance = HostInstance(box.url, name, tmp_path, build_adapter=recorder.build, **arguments)
            return stack.enter_context(instance)

        yield start
