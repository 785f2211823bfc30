"""Value keys are made in two places: by Python, and by PostgreSQL in generated columns. They have to be the same."""

from __future__ import annotations

import math
import random
import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from postroom.agent.routing.correlation import correlation_hash
from postroom.messagebox.storage.stored_values import from_value_key, to_stored, value_key
from postroom.values import Value, check_value, type_of
from tests.support.box import Box


def _values() -> list[Value]:
    """Edges of every domain, and floats of all magnitudes."""
    dice = random.Random(7)
    floats = [struct.unpack("<d", dice.randbytes(8))[0] for _ in range(2000)]
    floats += [digits * 10.0**exponent for digits in (1, -1.5, 9.99) for exponent in range(-9, 22)]
    floats += [5e-324, 1.7976931348623157e308, 0.1 + 0.2, 1e15, 999999999999999.9, 1e-4, 9.999e-5, 0.0, -0.0]
    decimals = [Decimal(text) for text in ("0", "0.00", "1E+5", "-12.50", "9" * 38, "0." + "0" * 37 + "1", "1200.0")]
    times = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)]
    times += [datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=n) for n in (-1, 0, 1)]
    given: list[Value] = [
        *(value for value in floats if math.isfinite(value)),
        *(decimals + times),
        "",
        "é\N{HUNDRED POINTS SYMBOL}",
        "a\x1fb",
        0,
        -(2**63),
        2**63 - 1,
        True,
        False,
    ]
    return [check_value(type_of(value), value) for value in given]


def test_python_and_postgresql_generate_the_same_keys(box: Box) -> None:
    values = _values()
    with box.connection.transaction(force_rollback=True):
        with box.connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO predicates (predicate_table, group_id, property_id, operator, value_text, value_int,"
                " value_decimal, value_float) VALUES (2, %s, 1, 0, %s, %s, %s, %s)",
                [(number, *to_stored(value)) for number, value in enumerate(values)],
            )
        stored = box.connection.execute(
            "SELECT coalesce(encode(float8send(value_float), 'hex'), value_key) FROM predicates ORDER BY group_id"
        ).fetchall()
    assert [key for (key,) in stored] == [value_key(value) for value in values]


def test_a_key_is_converted_back_to_its_value() -> None:
    values = _values()
    assert [from_value_key(type_of(value), value_key(value)) for value in values] == values


def test_python_and_postgresql_generate_the_same_hashes(box: Box) -> None:
    for correlation in ((1, ("EU",)), (12, ("é\N{HUNDRED POINTS SYMBOL}", "", "-3")), (3, ("a\x1fb",))):
        type_id, values = correlation
        assert box.one("SELECT correlation_hash(%s, %s)", type_id, list(values)) == correlation_hash(correlation)
