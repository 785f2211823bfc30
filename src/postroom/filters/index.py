"""The subscription index: find the subscriptions that each message of a batch matches.

    index = SubscriptionIndex()
    index.add(7, Region == "EU")
    rows, ids = index.match({"Orders#Region": pa.array(["EU", "US"])}, rows=2)      # array([0]), array([7])
    index.match_one({"Orders#Region": "EU"})                                        # [7]

The result equals that of ``evaluate`` for every subscription and message. Subscriptions are stored in segments whose
sizes decrease geometrically. A new subscription starts a small segment, and segments of similar size are merged. So
adding one subscription does not compile all others again, and the number of segments stays small. When matching in
several segments has cost as much as a merge, they are merged into one.

A batch can have as many matches as messages times subscriptions. ``match_in_pieces`` needs the memory of one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from postroom.errors import NotFound
from postroom.filters.columns import Columns, Int64
from postroom.filters.expression import Filter
from postroom.filters.matching.compiled_rows import Rows, build_rows, concatenate_rows
from postroom.filters.matching.ranked_batch import count_values, encode_text_columns
from postroom.filters.matching.segment import Segment
from postroom.values import Value

#: Segments are merged until each is this much larger than the next.
_RATIO = 8

#: Maximum number of matches in a piece. A piece of one message may have more, up to the number of subscriptions.
MATCHES_PER_PIECE = 1 << 20

#: The messages of a batch are matched one by one if its columns have fewer values than this. Otherwise NumPy is faster.
MIN_VALUES_OF_COLUMN = 16

#: The cost of one more segment for a batch and for a message that is matched alone. The unit is the cost for one
#: message of a large batch.
_COST_OF_BATCH, _COST_OF_ONE = 512, 32
#: The cost of merging segments, per subscription, in the same unit.
_COST_OF_MERGE = 2

#: ``Segment.match`` or ``Segment.match_one_by_one``.
MatchSegment = Callable[[Segment, Columns, int, int | None], tuple[Int64, Int64] | None]


class Piece(NamedTuple):
    """The matches of the messages from row ``start`` to before row ``end``, sorted by message and then by
    subscription."""

    start: int
    end: int
    rows: Int64
    ids: Int64


class SubscriptionIndex:
    """Subscriptions by id. Any number of threads may match while another thread adds and removes.

    Segments of up to ``small`` subscriptions are always merged: below that size, searching one more segment costs more
    than the merge. Additions are compiled together when the next match needs them. Until then at most ``max_pending``
    are kept as filters, which need more memory than compiled rows."""

    def __init__(self, *, small: int = 1_024, max_pending: int = 65_536) -> None:
        self._small = small
        self._max_pending = max_pending
        self._segments: tuple[Segment, ...] = ()
        self._pending: dict[int, Filter] = {}
        self._pending_rows: list[Rows] = []
        self._pending_row_ids: set[int] = set()
        self._changing = Lock()

    def add(self, id: int, filter: Filter) -> None:
        """Add the subscription ``id`` with this filter, or replace its filter."""
        with self._changing:
            self._remove(id)
            self._pending[id] = filter
            if len(self._pending) >= self._max_pending:
                self._pending_rows.append(build_rows(self._pending))
                self._pending_row_ids.update(self._pending)
                self._pending = {}

    def remove(self, id: int) -> None:
        """Remove the subscription ``id``. Raise NotFound if it is not in the index."""
        with self._changing:
            if not self._remove(id):
                raise NotFound(f"There is no subscription {id} in the index.")

    def __contains__(self, id: int) -> bool:
        with self._changing:
            return (
                id in self._pending or id in self._pending_row_ids or any(id in segment for segment in self._segments)
            )

    def __len__(self) -> int:
        with self._changing:
            return len(self._pending) + len(self._pending_row_ids) + sum(segment.live for segment in self._segments)

    def match(self, columns: Columns, rows: int) -> tuple[Int64, Int64]:
        """Return every match of a batch of ``rows`` messages, as arrays of message rows and subscription ids.

        The pairs are distinct, and sorted by message and then by subscription."""
        pieces = list(self.match_in_pieces(columns, rows))
        if len(pieces) == 1:
            return pieces[0].rows, pieces[0].ids
        nothing = np.empty(0, np.int64)
        return (
            np.concatenate([nothing, *(piece.rows for piece in pieces)]),
            np.concatenate([nothing, *(piece.ids for piece in pieces)]),
        )

    def match_in_pieces(self, columns: Columns, rows: int) -> Iterator[Piece]:
        """Yield the matches of a batch for consecutive ranges of messages. A range with too many matches is halved."""
        segments = self._get_segments(_COST_OF_BATCH + rows)
        columns = {key: column for key, column in columns.items() if any(key in each.slots_by_key for each in segments)}
        match: MatchSegment = Segment.match
        if count_values(columns, rows) < MIN_VALUES_OF_COLUMN:
            match = Segment.match_one_by_one
        elif len(segments) > 1:
            columns = encode_text_columns(columns)
        ranges = [(0, rows)] if rows else []
        while ranges:
            start, end = ranges.pop()
            whole = start == 0 and end == rows
            limit = MATCHES_PER_PIECE if end - start > 1 else None
            part = columns if whole else _slice_columns(columns, start, end)
            pairs = _match_segments(segments, match, part, end - start, limit)
            if pairs is None:
                middle = (start + end) // 2
                ranges += [(middle, end), (start, middle)]
            else:
                yield Piece(start, end, pairs[0] + start if start else pairs[0], pairs[1])

    def match_one(self, promoted: Mapping[str, Value]) -> list[int]:
        """Return the ids, ascending, of the subscriptions that one message with these promoted values matches."""
        found = [segment.match_one(promoted) for segment in self._get_segments(_COST_OF_ONE)]
        return found[0] if len(found) == 1 else sorted(id for ids in found for id in ids)

    def _get_segments(self, cost: int) -> tuple[Segment, ...]:
        """Return the compiled segments for a match of this cost."""
        with self._changing:
            self._compile()
            segments = self._segments
            first = self._find_costly_segment(cost)
        if first is None:
            return segments
        merged = Segment(concatenate_rows([segment.rows() for segment in segments[first:]]))
        with self._changing:
            # Another thread may have added or removed subscriptions. Then this happens again later.
            if self._segments is segments:
                self._segments = (*segments[:first], merged)
            self._compile()
            return self._segments

    def _find_costly_segment(self, cost: int) -> int | None:
        """Return the number of the segment to merge with all later ones, if that has become worth it.

        Every match costs more because another segment follows, and because of subscriptions that were removed. When
        this has cost as much as the merge, the merge takes place, so that the index is fast again some time after the
        last change."""
        for position, segment in enumerate(self._segments):
            is_followed = position + 1 < len(self._segments)
            segment.wasted += cost * (is_followed + 1 - segment.live / len(segment.ids))
            if segment.wasted > _COST_OF_MERGE * sum(each.live for each in self._segments[position:]):
                segment.wasted = 0
                return position
        return None

    def _compile(self) -> None:
        if not (self._pending or self._pending_rows):
            return
        parts = [*self._pending_rows, build_rows(self._pending)] if self._pending else self._pending_rows
        size = sum(len(part.ids) for part in parts)
        kept = list(self._segments)
        while kept and self._is_too_similar(kept[-1].live, size):
            size += kept[-1].live
            parts = [kept.pop().rows(), *parts]
        self._segments = (*kept, Segment(concatenate_rows(parts)))
        self._pending, self._pending_rows, self._pending_row_ids = {}, [], set()

    def _is_too_similar(self, larger: int, smaller: int) -> bool:
        return larger < _RATIO * smaller or larger + smaller <= self._small

    def _remove(self, id: int) -> bool:
        if self._pending.pop(id, None) is not None:
            return True
        if id in self._pending_row_ids:
            self._compile()
        for position, segment in enumerate(self._segments):
            if id in segment:
                left = _compact_segment(segment.without(id))
                self._segments = (*self._segments[:position], *left, *self._segments[position + 1 :])
                return True
        return False

    def __getstate__(self) -> dict[str, Any]:
        with self._changing:
            state = self.__dict__.copy()
        del state["_changing"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._changing = Lock()


def _compact_segment(segment: Segment) -> tuple[Segment, ...]:
    """Compile a segment again if more than half of its subscriptions were removed: they still cost time."""
    if not segment.live:
        return ()
    return (segment,) if segment.live * 2 >= len(segment.ids) else (Segment(segment.rows()),)


def _match_segments(
    segments: tuple[Segment, ...], match: MatchSegment, columns: Columns, rows: int, limit: int | None
) -> tuple[Int64, Int64] | None:
    """Return the matches of all segments, or None if there may be more than ``limit``."""
    found = []
    for segment in segments:
        pairs = match(segment, columns, rows, limit)
        if pairs is None:
            return None
        if limit is not None:
            limit -= len(pairs[0])
        if len(pairs[0]):
            found.append(pairs)
    return found[0] if len(found) == 1 else _sort_pairs(found, rows)


def _slice_columns(columns: Columns, start: int, end: int) -> Columns:
    """Return the columns of some messages. A value that all messages share stays as it is."""
    return {
        key: column.slice(start, end - start) if isinstance(column, pa.Array | pa.ChunkedArray) else column
        for key, column in columns.items()
    }


def _sort_pairs(found: list[tuple[Int64, Int64]], rows: int) -> tuple[Int64, Int64]:
    messages = np.concatenate([np.empty(0, np.int64), *(messages for messages, _ in found)])
    ids = np.concatenate([np.empty(0, np.int64), *(ids for _, ids in found)])
    span = int(ids.max(initial=0)) + 1
    if ids.min(initial=0) < 0 or rows * span >= 2**63:
        order = np.lexsort((ids, messages))
        return messages[order], ids[order]
    # Sorting one array of numbers is many times faster than sorting two arrays together.
    pairs = np.sort(messages * span + ids)
    return np.divmod(pairs, span)
