"""The subscription index: find the subscriptions that each message of a batch matches.

    index = SubscriptionIndex()
    index.add(7, Region == "EU")
    rows, ids = index.match({"Orders#Region": pa.array(["EU", "US"])}, rows=2)      # array([0]), array([7])
    index.match_one({"Orders#Region": "EU"})                                        # [7]

The result equals that of ``evaluate`` for every subscription and message. Subscriptions are stored in segments whose
sizes decrease geometrically. A new subscription starts a small segment, and segments of similar size are merged. So
adding one subscription does not compile all others again, and the number of segments stays small.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any

import numpy as np

from postroom.errors import NotFound
from postroom.filters.columns import Columns
from postroom.filters.expression import Filter
from postroom.filters.matching.ranks import Int64, encode_text_columns
from postroom.filters.matching.rows import Rows, build_rows, concatenate_rows
from postroom.filters.matching.segment import Segment
from postroom.values import Value

#: Segments are merged until each is this much larger than the next.
_RATIO = 8


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
        self._read: list[Rows] = []
        self._read_ids: set[int] = set()
        self._changing = Lock()

    def add(self, id: int, filter: Filter) -> None:
        """Add the subscription ``id`` with this filter, or replace its filter."""
        with self._changing:
            self._remove(id)
            self._pending[id] = filter
            if len(self._pending) >= self._max_pending:
                self._read.append(build_rows(self._pending))
                self._read_ids.update(self._pending)
                self._pending = {}

    def remove(self, id: int) -> None:
        """Remove the subscription ``id``. Raise NotFound if it is not in the index."""
        with self._changing:
            if not self._remove(id):
                raise NotFound(f"There is no subscription {id} in the index.")

    def __contains__(self, id: int) -> bool:
        with self._changing:
            return id in self._pending or id in self._read_ids or any(id in segment for segment in self._segments)

    def __len__(self) -> int:
        with self._changing:
            return len(self._pending) + len(self._read_ids) + sum(segment.live for segment in self._segments)

    def match(self, columns: Columns, rows: int) -> tuple[Int64, Int64]:
        """Return every match of a batch of ``rows`` messages, as arrays of message rows and subscription ids.

        The pairs are distinct, and sorted by message and then by subscription."""
        if not rows:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        segments = self._compile_pending()
        if len(segments) > 1:
            columns = encode_text_columns(columns, {slot.key for segment in segments for slot in segment.slots})
        found = [pairs for segment in segments if len((pairs := segment.match(columns, rows))[0])]
        return found[0] if len(found) == 1 else _sort_pairs(found, rows)

    def match_one(self, promoted: Mapping[str, Value]) -> list[int]:
        """Return the ids, ascending, of the subscriptions that one message with these promoted values matches."""
        found = [segment.match_one(promoted) for segment in self._compile_pending()]
        return found[0] if len(found) == 1 else sorted(id for ids in found for id in ids)

    def _compile_pending(self) -> tuple[Segment, ...]:
        with self._changing:
            self._compile()
            return self._segments

    def _compile(self) -> None:
        if not (self._pending or self._read):
            return
        parts = [*self._read, build_rows(self._pending)] if self._pending else self._read
        size = sum(len(part.ids) for part in parts)
        kept = list(self._segments)
        while kept and self._too_near(kept[-1].live, size):
            size += kept[-1].live
            parts = [kept.pop().rows(), *parts]
        self._segments = (*kept, Segment(concatenate_rows(parts)))
        self._pending, self._read, self._read_ids = {}, [], set()

    def _too_near(self, larger: int, smaller: int) -> bool:
        return larger < _RATIO * smaller or larger + smaller <= self._small

    def _remove(self, id: int) -> bool:
        if self._pending.pop(id, None) is not None:
            return True
        if id in self._read_ids:
            self._compile()
        for place, segment in enumerate(self._segments):
            if id in segment:
                left = _compact(segment.without(id))
                self._segments = (*self._segments[:place], *left, *self._segments[place + 1 :])
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


def _compact(segment: Segment) -> tuple[Segment, ...]:
    """Compile a segment again if more than half of its subscriptions were removed: they still cost time."""
    if not segment.live:
        return ()
    return (segment,) if segment.live * 2 >= len(segment.ids) else (Segment(segment.rows()),)


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
