"""Values of each type in Arrow columns. Messages with equal ranks are merged, and others are not."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from postroom.errors import BadValue
from postroom.filters.columns import build_columns, to_arrow_type, to_plain_column, to_value_type
from postroom.filters.matching.ranked_batch import RankedBatch
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
    assert to_arrow_type(value_type) == data_type
    assert to_value_type(data_type) is value_type


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
    assert to_value_type(data_type) is value_type


def test_a_column_is_cast_to_the_type_of_its_values() -> None:
    assert to_plain_column(pa.array([1, None], pa.int8()), ValueType.INT).type == pa.int64()
    wide = to_plain_column(pa.array([Decimal("9" * 38)], pa.decimal128(38, 0)), ValueType.DECIMAL)
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
    assert build_columns([{"k": value}, {}])["k"].to_pylist() == [value, None]


def test_a_property_must_have_one_type_in_a_batch() -> None:
    assert set(build_columns([{"a": 1}, {"b": "x"}])) == {"a", "b"}
    with pytest.raises(BadValue, match=r"a is an int in one message and 'x' in another"):
        build_columns([{"a": 1}, {"a": "x"}])


def test_equal_messages_are_merged() -> None:
    ranks = [np.array([1, 1, -1, 1], np.int32), None, np.array([0, 0, 0, 4], np.int32)]
    shared = RankedBatch(rows=4, ranks=ranks, integers={}).deduplicate()
    assert shared is not None
    batch, inverse = shared
    assert batch.rows == 3
    assert inverse[0] == inverse[1]
    assert len(set(inverse.tolist())) == 3
    for slot in (0, 2):
        kept, original = batch.ranks[slot], ranks[slot]
        assert kept is not None
        assert original is not None
        assert kept[inverse].tolist() == original.tolist()


def test_messages_that_differ_in_one_flag_are_not_merged() -> None:
    same = np.zeros(3, np.int32)
    shared = RankedBatch(rows=3, ranks=[same], integers={0: np.array([1, 2, 1])}).deduplicate()
    assert shared is not None
    assert shared[1].tolist() == [0, 1, 0]


def test_many_wide_properties_do_not_overflow() -> None:
    # Five columns of 2**16 values: a product in 64 bits would overflow and lose the first column.
    wide = [np.array([2**16 - 2, 2**16 - 2, 0, 0, 0, 0], np.int32) for _ in range(5)]
    wide[0] = np.array([2**16 - 2, 2**16 - 2, 0, 1, 0, 1], np.int32)
    shared = RankedBatch(rows=6, ranks=wide, integers={}).deduplicate()
    assert shared is not None
    assert shared[1].tolist() == [2, 2, 0, 1, 0, 1]


def test_a_batch_with_few_equal_messages_is_not_merged() -> None:
    assert RankedBatch(rows=4, ranks=[np.array([0, 1, 2, 3], np.int32)], integers={}).deduplicate() is None
