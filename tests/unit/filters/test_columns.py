"""Values of each type in Arrow columns."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from postroom.errors import BadValue
from postroom.filters.columns import arrow_type, columns_of, plain, value_type_of_column
from postroom.values import Value, ValueType


@pytest.mark.parametrize(
    ("value_type", "data_type"),
    [
        (ValueType.STR, pa.string()),
        (ValueType.INT, pa.int64()),
        (ValueType.DECIMAL, pa.decimal256(76, 38)),
        (ValueType.FLOAT, pa.float64()),
        (ValueType.BOOL, pa.bool_()),
        (ValueType.DATETIME, pa.timestamp("us", "UTC")),
    ],
)
def test_every_value_type_has_its_arrow_type(value_type: ValueType, data_type: pa.DataType) -> None:
    assert arrow_type(value_type) == data_type
    assert value_type_of_column(data_type) is value_type


@pytest.mark.parametrize(
    ("data_type", "value_type"),
    [
        (pa.large_string(), ValueType.STR),
        (pa.string_view(), ValueType.STR),
        (pa.dictionary(pa.int8(), pa.string()), ValueType.STR),
        (pa.int8(), ValueType.INT),
        (pa.uint32(), ValueType.INT),
        (pa.decimal128(38, 18), ValueType.DECIMAL),
        (pa.float32(), ValueType.FLOAT),
        (pa.timestamp("ns", "Europe/Berlin"), ValueType.DATETIME),
        (pa.timestamp("us"), None),
        (pa.uint64(), None),
        (pa.binary(), None),
        (pa.null(), None),
        (pa.list_(pa.int64()), None),
    ],
)
def test_other_arrow_types_map_to_a_value_type_or_none(data_type: pa.DataType, value_type: ValueType | None) -> None:
    assert value_type_of_column(data_type) is value_type


def test_plain_casts_a_column_to_the_type_of_its_values() -> None:
    assert plain(pa.array([1, None], pa.int8()), ValueType.INT).type == pa.int64()
    wide = plain(pa.array([Decimal("9" * 38)], pa.decimal128(38, 0)), ValueType.DECIMAL)
    assert wide.to_pylist() == [Decimal("9" * 38)]


@pytest.mark.parametrize(
    "value",
    [
        Decimal("9" * 38),
        Decimal("-1E-38"),
        Decimal("1E+37"),
        -(2**63),
        "\U0010ffff" * 256,
        5e-324,
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ],
)
def test_the_limits_of_the_domains_fit_into_columns(value: Value) -> None:
    assert columns_of([{"k": value}, {}])["k"].to_pylist() == [value, None]


def test_a_property_must_have_one_type_in_a_batch() -> None:
    assert set(columns_of([{"a": 1}, {"b": "x"}])) == {"a", "b"}
    with pytest.raises(BadValue, match=r"a is a int in one message and 'x' in another"):
        columns_of([{"a": 1}, {"a": "x"}])
