"""Reading and writing filters as text are inverse to each other, and nothing that is typed breaks the reader."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from postroom.errors import BadFilter
from postroom.filters.expression import Filter
from postroom.filters.text import format_filter, format_property, parse
from tests.support.filter_strategies import PROPERTIES, filters

WORDS = [
    *(format_property(each) for each in PROPERTIES),
    *"Int0 Str0 Bool0 Float0 exists and or not true false == != < <= > >= & ( ) , = ! [".split(),  # noqa: SIM905
    *"' \" \\ { } 1 -2.5 1e400".split(),  # noqa: SIM905
    "'a'",
    "'9.5'",
    '"2026-01-31T12:00:00Z"',
    " ",
]  # fmt: skip


@settings(deadline=None, max_examples=100)
@given(filters())
def test_what_is_written_is_read_back(filter: Filter) -> None:
    text = format_filter(filter)
    assert parse(text, PROPERTIES) == filter
    assert text.isprintable()
    assert format_filter(parse(f"  ( {text})\n", PROPERTIES)) == text


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=60) | st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join))
@example("Str0 == '\ud800'")
@example("Int0 == ²")
@example("{" * 50)
@example("Int0 == 1e999999999999999999")
def test_any_text_is_a_filter_or_is_refused_at_a_place(text: str) -> None:
    try:
        parsed = parse(text, PROPERTIES)
    except BadFilter as error:
        if error.why:
            line, caret = error.why.split("\n")
            assert caret.strip() == "^"
            assert caret.index("^") <= len(line)
    else:
        assert parse(format_filter(parsed), PROPERTIES) == parsed


@pytest.mark.parametrize(
    "text", ["a" * 100_000, "'" + "\\" * 50_001, "{" + "a" * 100_000, "(" * 100_000, "1" * 100_000]
)
def test_a_long_text_is_refused_quickly(text: str) -> None:
    with pytest.raises(BadFilter):
        parse(text, PROPERTIES)
