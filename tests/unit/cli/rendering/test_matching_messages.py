"""The messages that a filter matches, as `postroom subscription explain` writes them."""

from __future__ import annotations

import pytest

from postroom.cli.rendering.explanation_text import show_matches
from postroom.operations.explain.matching_messages import MatchingMessages
from postroom.properties import Property

Region = Property("Orders.Region", str)


@pytest.mark.parametrize(
    ("scanned", "matching", "text"),
    [
        (0, 0, "The spool is empty.\n"),
        (1, 0, "The message that was compared would not match.\n"),
        (1, 1, "The message that was compared would match.\n"),
        (2, 1, "1 of the 2 messages that were compared would match.\n"),
    ],
)
def test_the_first_line_says_how_many_messages_match(
    scanned: int, matching: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_matches(MatchingMessages(filter=Region == "EU", scanned=scanned, matching=matching))
    assert capsys.readouterr().out == text
