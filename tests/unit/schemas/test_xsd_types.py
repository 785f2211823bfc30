from __future__ import annotations

import pytest

from postroom.schemas.xsd_types import to_value_type
from postroom.values import ValueType


@pytest.mark.parametrize(
    ("xsd_type", "expected"),
    [
        ("token", ValueType.STR),
        ("unsignedInt", ValueType.INT),
        ("integer", ValueType.DECIMAL),
        ("double", ValueType.FLOAT),
        ("boolean", ValueType.BOOL),
        ("gYearMonth", ValueType.DATETIME),
        ("time", None),
        ("hexBinary", None),
    ],
)
def test_xsd_types_become_the_six_types_of_properties(xsd_type: str, expected: ValueType | None) -> None:
    """CTX-16."""
    assert to_value_type(xsd_type) is expected
