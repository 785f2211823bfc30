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
from postroom.filters.matching.rows import Int64, rows_of
from postroom.filters.matching.segment import Segment, merged
from postroom.values import Value

#: Segments are merged until each is this much larger than the next.
_RATIO = 8


class SubscriptionIndex:
    """Subscriptions by id. Any number of threads may match while another adds and removes.

    Segments of up to ``small`` subscriptions are always merged: below that size, a segment costs a message more than
    the merge costs whoever adds. Additions are compiled when a match needs them, or when ``most_waiting`` wait."""

    def __init__(self, *, small: int = 1_024, most_waiting: int = 65_536) -> None:
        self._small = small
        self._most_waiting = most_waiting
        self._segments: tuple[Segment, ...] = ()
        self._waiting: dict[int, Filter] = {}
        self._changing = Lock()

    def add(self, id: int, filter: Filter) -> None:
        """From now on messages that meet ``filter`` meet the subscription ``id``, in place of what it had before."""
        with self._changing:
            self._remove(id)
            self._waiting[id] = filter
            if len(self._waiting) >= self._most_waiting:
                self._compile()

    def remove(self, id: int) -> None:
        """No message meets the subscription ``id`` any more."""
        with self._changing:
            if not self._remove(id):
                raise NotFound(f"There is no subscription {id} in the index.")

    def __contains__(self, id: int) -> bool:
        with self._changing:
            return id in self._waiting or any(id in segment for segment in self._segments)

    def __len__(self) -> int:
        with self._changing:
            return len(self._waiting) + sum(segment.live for segment in self._segments)

    def match(self, columns: Columns, rows: int) -> tuple[Int64, Int64]:
        """Message (its row) and subscription of every match of a batch of ``rows`` messages.

        Each pair stands there once; they are sorted by message and then by subscription."""
        if not rows:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        found = [segment.match(columns, rows) for segment in self._compiled()]
        if len(found) == 1:
            return found[0]
        messages = np.concatenate([np.empty(0, np.int64), *(messages for messages, _ in found)])
        ids = np.concatenate([np.empty(0, np.int64), *(ids for _, ids in found)])
        order = np.lexsort((ids, messages))
        return messages[order], ids[order]

    def match_one(self, promoted: Mapping[str, Value]) -> list[int]:
        """The subscriptions that one message with these promoted values, by property key, meets; ascending."""
        found = [segment.match_one(promoted) for segment in self._compiled()]
        return found[0] if len(found) == 1 else sorted(id for ids in found for id in ids)

    def _compiled(self) -> tuple[Segment, ...]:
        with self._changing:
            self._compile()
            return self._segments

    def _compile(self) -> None:
        if not self._waiting:
            return
        segments = [*self._segments, Segment(rows_of(self._waiting))]
        while len(segments) > 1 and self._too_near(segments[-2].live, segments[-1].live):
            segments[-2:] = [merged(segments[-2:])]
        self._segments = tuple(segments)
        self._waiting = {}

    def _too_near(self, larger: int, smaller: int) -> bool:
        return larger < _RATIO * smaller or larger + smaller <= self._small

    def _remove(self, id: int) -> bool:
        if self._waiting.pop(id, None) is not None:
            return True
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
    return (segment,) if segment.live * 2 >= len(segment.ids) else (merged([segment]),)
