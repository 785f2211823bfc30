"""Durations are shown in words."""

from __future__ import annotations

from datetime import timedelta

import pytest

from postroom.clock import format_duration


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0.0 s"),
        (0.42, "0.4 s"),
        (59, "59 s"),
        (60, "1 min"),
        (61, "1 min 1 s"),
        (3_600, "1 h"),
        (3_660.9, "1 h 1 min"),
        (90_061, "1 d 1 h"),
        (86_460, "1 d"),
    ],
)
def test_a_duration_has_at_most_two_units(seconds: float, words: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == words


def test_no_duration_is_an_empty_text() -> None:
    assert format_duration(None) == ""
