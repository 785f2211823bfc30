"""Every value that the journal accepts is read as it was stored, and every JSON value is accepted."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from postroom.orchestrations.recorded_values import decode_value, encode_value, from_recorded, to_recorded

#: With the names that the journal itself uses for values that JSON does not have.
KEYS = st.sampled_from(["$type", "value", "tuple", "dict"]) | st.text()
JSON_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["$type", "tuple", "dict", "bytes"])
    | st.text()
)
JSON_VALUES = st.recursive(
    JSON_SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4)
)
OTHER_SCALARS = (
    st.binary()
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.timedeltas()
    # ISO 8601 has no fold.
    | st.datetimes(timezones=st.sampled_from([None, UTC])).map(lambda time: time.replace(fold=0))
)
VALUES = st.recursive(
    JSON_SCALARS | OTHER_SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple) | st.dictionaries(KEYS, inner, max_size=4)
    ),
)


@given(JSON_VALUES)
def test_every_json_value_is_read_as_it_was_stored(value: Any) -> None:
    assert repr(decode_value(encode_value(value))) == repr(value)


@given(VALUES)
def test_every_value_is_read_as_it_was_stored(value: Any) -> None:
    stored = json.loads(json.dumps(to_recorded(value)))
    assert repr(from_recorded(stored)) == repr(value)


def test_a_journal_without_escaped_dicts_is_read() -> None:
    value = {"at": (datetime(2026, 1, 1, tzinfo=UTC), timedelta(days=1))}
    assert to_recorded(value) == {
        "at": {
            "$type": "tuple",
            "value": [
                {"$type": "datetime", "value": "2026-01-01T00:00:00+00:00"},
                {"$type": "timedelta", "value": [1, 0, 0]},
            ],
        }
    }
    assert decode_value(encode_value(value)) == value
