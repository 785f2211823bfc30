"""Many subscriptions at once: which of them does each message meet?

    index = SubscriptionIndex()
    index.add(7, Region == "EU")
    rows, ids = index.match({"Orders#Region": pa.array(["EU", "US"])}, rows=2)      # array([0]), array([7])
    index.match_one({"Orders#Region": "EU"})                                        # [7]

What comes out is what ``evaluate`` says, for every subscription and message. Subscriptions stand in segments whose
sizes fall geometrically. A new one makes a small segment, and segments that have come near each other in size are
merged, so that adding one never compiles all the others again, and there are never more than a handful to ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any

import numpy as np

from postroom.errors import NotFound
from postroom.filters.columns import Columns
from postroom.filters.expression import Filter
from postroom.filters.matching.ranked import encoded_once
from postroom.filters.matching.rows import Int64, Rows, concatenated, rows_of
from postroom.filters.matching.segment import Segment
from postroom.values import Value

#: Segments are merged until each is this much larger than the next.
_RATIO = 8


class SubscriptionIndex:
    """Subscriptions by id. Any number of threads may match while another adds and removes.

    Segments of up to ``small`` subscriptions are always merged: below that size, a segment costs a message more than
    the merge costs whoever adds. Additions are compiled when a match needs them, all at once; until then, no more than
    ``most_waiting`` are kept as filters, which take up more room than what is made of them."""

    def __init__(self, *, small: int = 1_024, most_waiting: int = 65_536) -> None:
        self._small = small
        self._most_waiting = most_waiting
        self._segments: tuple[Segment, ...] = ()
        self._waiting: dict[int, Filter] = {}
        self._read: list[Rows] = []
        self._read_ids: set[int] = set()
        self._changing = Lock()

    def add(self, id: int, filter: Filter) -> None:
        """From now on messages that meet ``filter`` meet the subscription ``id``, in place of what it had before."""
        with self._changing:
            self._remove(id)
            self._waiting[id] = filter
            if len(self._waiting) >= self._most_waiting:
                self._read.append(rows_of(self._waiting))
                self._read_ids.update(self._waiting)
                self._waiting = {}

    def remove(self, id: int) -> None:
        """No message meets the subscription ``id`` any more."""
        with self._changing:
            if not self._remove(id):
                raise NotFound(f"There is no subscription {id} in the index.")

    def __contains__(self, id: int) -> bool:
        with self._changing:
            return id in self._waiting or id in self._read_ids or any(id in segment for segment in self._segments)

    def __len__(self) -> int:
        with self._changing:
            return len(self._waiting) + len(self._read_ids) + sum(segment.live for segment in self._segments)

    def match(self, columns: Columns, rows: int) -> tuple[Int64, Int64]:
        """Message (its row) and subscription of every match of a batch of ``rows`` messages.

        Each pair stands there once; they are sorted by message and then by subscription."""
        if not rows:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        segments = self._compiled()
        if len(segments) > 1:
            columns = encoded_once(columns, {slot.key for segment in segments for slot in segment.slots})
        found = [pairs for segment in segments if len((pairs := segment.match(columns, rows))[0])]
        return found[0] if len(found) == 1 else _sorted(found, rows)

    def match_one(self, promoted: Mapping[str, Value]) -> list[int]:
        """The subscriptions that one message with these promoted values, by property key, meets; ascending."""
        found = [segment.match_one(promoted) for segment in self._compiled()]
        return found[0] if len(found) == 1 else sorted(id for ids in found for id in ids)

    def _compiled(self) -> tuple[Segment, ...]:
        with self._changing:
            self._compile()
            return self._segments

    def _compile(self) -> None:
        if not (self._waiting or self._read):
            return
        parts = [*self._read, rows_of(self._waiting)] if self._waiting else self._read
        size = sum(len(part.ids) for part in parts)
        kept = list(self._segments)
        while kept and self._too_near(kept[-1].live, size):
            size += kept[-1].live
            parts = [kept.pop().rows(), *parts]
        self._segments = (*kept, Segment(concatenated(parts)))
        self._waiting, self._read, self._read_ids = {}, [], set()

    def _too_near(self, larger: int, smaller: int) -> bool:
        return larger < _RATIO * smaller or larger + smaller <= self._small

    def _remove(self, id: int) -> bool:
        if self._waiting.pop(id, None) is not None:
            return True
        if id in self._read_ids:
            self._compile()
        for place, segment in enumerate(self._segments):
            if id in segment:
                left = _compacted(segment.without(id))
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


def _compacted(segment: Segment) -> tuple[Segment, ...]:
    """A segment costs what it once held; one that is more than half dead is compiled again."""
    if not segment.live:
        return ()
    return (segment,) if segment.live * 2 >= len(segment.ids) else (Segment(segment.rows()),)


def _sorted(found: list[tuple[Int64, Int64]], rows: int) -> tuple[Int64, Int64]:
    messages = np.concatenate([np.empty(0, np.int64), *(messages for messages, _ in found)])
    ids = np.concatenate([np.empty(0, np.int64), *(ids for _, ids in found)])
    span = int(ids.max(initial=0)) + 1
    if ids.min(initial=0) < 0 or rows * span >= 2**63:
        order = np.lexsort((ids, messages))
        return messages[order], ids[order]
    # One array of numbers sorts many times faster than two that belong together.
    pairs = np.sort(messages * span + ids)
    return np.divmod(pairs, span)
