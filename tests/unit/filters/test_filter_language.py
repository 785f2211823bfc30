"""The examples of the reference are correct, and every operator has a heading."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from postroom.errors import BadFilter
from postroom.filters.expression import Filter, Operator
from postroom.filters.text import format_filter, parse
from postroom.properties import Property

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "filter-language.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Return the fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def run_python_examples() -> dict[str, Any]:
    """Run the Python examples and return their names."""
    names: dict[str, Any] = {}
    for block in blocks("python"):
        exec(block, names)
    return names


def properties() -> list[Property]:
    names = run_python_examples()
    system = names["BTS"]
    declared = (each for each in names.values() if isinstance(each, Property))
    return [*declared, system.ReceivePortName, system.InboundTransportType]


@pytest.mark.parametrize("block", blocks("filter"))
def test_an_example_can_be_parsed(block: str) -> None:
    filter = parse(block, properties())
    assert parse(format_filter(filter), properties()) == filter


@pytest.mark.parametrize("block", blocks("filter-error"))
def test_an_example_of_an_error_is_rejected(block: str) -> None:
    with pytest.raises(BadFilter):
        parse(block, properties())


def test_the_shown_error_is_the_raised_error() -> None:
    with pytest.raises(BadFilter) as caught:
        parse(blocks("filter-error")[-1].rstrip("\n"), properties())
    assert f"{caught.value}\n" == blocks("text")[-1]


def test_the_examples_have_the_documented_meaning() -> None:
    names, examples = run_python_examples(), blocks("filter")
    assert parse(examples[0], properties()) == names["big_orders"]
    multiplied = next(i for i, text in enumerate(examples) if text.startswith("(Region"))
    assert parse(examples[multiplied], properties()) == parse(examples[multiplied + 1], properties())
    rounded: Filter = parse("Priority == 9.5", properties())
    assert "Priority == 9.5\n" in examples
    assert rounded == (names["Priority"] == 10)


def test_every_operator_has_a_heading() -> None:
    headings = "".join(line for line in PAGE.splitlines() if line.startswith("###"))
    assert all(f"`{op.symbol}" in headings for op in Operator)
