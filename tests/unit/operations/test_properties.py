"""Parsing of properties that are given on a command line."""

from __future__ import annotations

import pytest

from postroom.errors import BadValue
from postroom.operations.properties import parse_context
from postroom.properties import Property

Region = Property("Orders.Region", str)


@pytest.mark.parametrize(
    ("promoted", "written"), [(("Region=EU", "Orders.Region=US"), ()), (("Region=EU",), ("Region=EU",))]
)
def test_a_property_is_given_once(promoted: tuple[str, ...], written: tuple[str, ...]) -> None:
    with pytest.raises(BadValue, match=r"Orders\.Region is given twice"):
        parse_context(promoted, written, [Region])
    assert parse_context(promoted[:1], (), [Region])[Region] == "EU"
