"""A batch is matched in pieces, so that memory does not depend on the number of matches."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from postroom.filters import index as index_module
from postroom.filters.columns import Columns
from postroom.filters.expression import Filter
from postroom.filters.index import MATCHES_PER_PIECE, SubscriptionIndex
from postroom.properties import Property

Region, Number = Property("Orders.Region", str), Property("Orders.Number", int)


def build_index(filters: list[Filter], *, segments: int = 1) -> SubscriptionIndex:
    """Return an index whose segments have about the same size."""
    index = SubscriptionIndex(small=1)
    for number, filter in enumerate(filters):
        index.add(number, filter)
        if segments > 1 and number % (len(filters) // segments) == 0:
            index.match({}, 1)
    return index


@pytest.mark.parametrize("is_distinct", [True, False], ids=["distinct messages", "equal messages"])
def test_memory_stays_flat_if_all_subscriptions_match_all_messages(is_distinct: bool) -> None:
    messages, subscriptions = 2_000, 5_000
    index = build_index([Number >= -number for number in range(subscriptions)])
    columns: Columns = {Number.key: pa.array(range(messages) if is_distinct else [1] * messages)}
    index.match({Number.key: pa.array([1])}, 1)
    tracemalloc.start()
    try:
        counts = np.zeros(messages, np.int64)
        for piece in index.match_in_pieces(columns, messages):
            assert len(piece.rows) <= MATCHES_PER_PIECE
            counts += np.bincount(piece.rows, minlength=messages)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert counts.tolist() == [subscriptions] * messages
    # All pairs together would need 160 MB for the result alone.
    assert peak < 100 << 20


@pytest.mark.parametrize("limit", [1, 3, 10, 100, 1_000])
def test_the_pieces_together_are_the_matches_of_the_batch(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    regions = ["EU", "US", "APAC"]
    filters = [Region == regions[number % 3] for number in range(10)]
    filters += [Number >= number for number in range(10)]
    index = build_index(filters, segments=4)
    rows = 50
    columns: Columns = {
        Region.key: pa.array([regions[row % 2] for row in range(rows)]),
        Number.key: pa.array([None if row % 7 == 0 else row % 12 for row in range(rows)], pa.int64()),
    }
    expected_rows, expected_ids = index.match(columns, rows)
    assert len(expected_rows) > 200
    monkeypatch.setattr(index_module, "MATCHES_PER_PIECE", limit)
    pieces = list(index.match_in_pieces(columns, rows))
    assert (pieces[0].start, pieces[-1].end) == (0, rows)
    assert [piece.start for piece in pieces[1:]] == [piece.end for piece in pieces[:-1]], "the ranges are consecutive"
    for piece in pieces:
        assert len(piece.rows) <= limit or piece.end == piece.start + 1
        assert all(piece.start <= row < piece.end for row in piece.rows.tolist())
    assert np.concatenate([piece.rows for piece in pieces]).tolist() == expected_rows.tolist()
    assert np.concatenate([piece.ids for piece in pieces]).tolist() == expected_ids.tolist()
    assert index.match(columns, rows)[1].tolist() == expected_ids.tolist()
