"""Messages with equal values for all predicates are merged, and others are not."""

from __future__ import annotations

import numpy as np

from postroom.filters.matching.ranks import RankedBatch


def test_equal_messages_are_merged() -> None:
    ranks = [np.array([1, 1, -1, 1], np.int32), None, np.array([0, 0, 0, 4], np.int32)]
    shared = RankedBatch(rows=4, ranks=ranks, integers={}).deduplicate()
    assert shared is not None
    batch, alike = shared
    assert batch.rows == 3
    assert alike[0] == alike[1]
    assert len(set(alike.tolist())) == 3
    for slot in (0, 2):
        kept, given = batch.of(slot), ranks[slot]
        assert kept is not None
        assert given is not None
        assert kept[alike].tolist() == given.tolist()


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
