"""The adapter of the send ports that orchestrations send through."""

from __future__ import annotations

import pytest

from tests.support.recording_adapter import RecordingAdapter


@pytest.fixture
def recorder() -> RecordingAdapter:
    return RecordingAdapter()
