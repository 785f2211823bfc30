"""Parsing and formatting filters are inverse to each other, and no text breaks the parser."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from postroom.errors import BadFilter
from postroom.filters.expression import Filter, Predicate
from postroom.filters.text import format_filter, format_predicate, parse
from tests.support.filter_strategies import PROPERTIES, filters, odd_properties, predicates

WORDS = [
    *(each.dotted_name for each in PROPERTIES),
    *"Int0 Str0 Bool0 Float0 exists and or not true false == != < <= > >= & ( ) , = ! [".split(),  # noqa: SIM905
    *"' \" \\ { } 1 -2.5 1e400".split(),  # noqa: SIM905
    "'a'",
    "'9.5'",
    '"2026-01-31T12:00:00Z"',
    " ",
]  # fmt: skip


@given(filters())
def test_a_formatted_filter_is_parsed_back(filter: Filter) -> None:
    text = format_filter(filter)
    assert parse(text, PROPERTIES) == filter
    assert text.isprintable()
    assert format_filter(parse(f"  ( {text})\n", PROPERTIES)) == text


@given(st.lists(predicates(odd_properties()), min_size=1, max_size=4))
def test_a_filter_with_any_property_name_is_parsed_back(group: list[Predicate]) -> None:
    # A key identifies one property, also where the types differ.
    by_key = {predicate.property.key: predicate for predicate in group}
    filter = Filter((tuple(by_key.values()),))
    text = format_filter(filter)
    assert text.isprintable()
    assert parse(text, [predicate.property for predicate in by_key.values()]) == filter


@dataclass(frozen=True)
class TypedFilter:
    """A filter as a user types it, and the expected result. ``operator`` is the outermost and / or."""

    text: str
    filter: Filter
    operator: str = ""


@st.composite
def join_filters(draw: st.DrawFn, inner: st.SearchStrategy[TypedFilter]) -> TypedFilter:
    """Join two filters by and / or, with parentheses where they are needed and sometimes elsewhere."""
    left, right = draw(inner), draw(inner)
    word = draw(st.sampled_from(["and", "or"]))
    space = draw(st.sampled_from([" ", "  ", "\n\t"]))

    def operand(typed: TypedFilter, *, is_right: bool) -> str:
        needed = (word == "and" and typed.operator == "or") or (is_right and typed.operator == word)
        return f"({typed.text})" if needed or draw(st.booleans()) else typed.text

    text = space.join([operand(left, is_right=False), draw(vary_case(word)), operand(right, is_right=True)])
    filter = left.filter & right.filter if word == "and" else left.filter | right.filter
    return TypedFilter(text, filter, word)


def vary_case(word: str) -> st.SearchStrategy[str]:
    return st.sampled_from([word, word.upper(), word.title()])


@settings(max_examples=60)
@given(
    st.recursive(
        predicates().map(lambda one: TypedFilter(format_predicate(one), Filter(((one,),)))),
        lambda inner: join_filters(inner),
        max_leaves=8,
    )
)
def test_and_binds_tighter_than_or_at_every_depth(typed: TypedFilter) -> None:
    parsed = parse(typed.text, PROPERTIES)
    assert parsed == typed.filter
    assert parse(format_filter(parsed), PROPERTIES) == parsed


@given(st.text(max_size=60) | st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join))
@example("Str0 == '\ud800'")
@example("Int0 == ²")
@example("{" * 50)
@example("Int0 == 1e999999999999999999")
def test_any_text_is_a_filter_or_an_error_with_a_position(text: str) -> None:
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
def test_a_long_invalid_text_is_rejected_quickly(text: str) -> None:
    with pytest.raises(BadFilter):
        parse(text, PROPERTIES)
