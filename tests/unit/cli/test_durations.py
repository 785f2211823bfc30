from __future__ import annotations

from datetime import timedelta

import pytest

from postroom.cli.rendering.output import format_duration


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
def test_an_age_is_said_in_two_units_at_most(seconds: float, words: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == words


def test_no_age_is_nothing() -> None:
    assert format_duration(None) == ""
