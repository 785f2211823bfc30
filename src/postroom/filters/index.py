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
from copy import copy
from threading import Lock
from typing import NamedTuple

import numpy as np

from postroom.errors import NotFound
from postroom.filters.columns import Bool, Columns, Int32, Int64, Slot, mark_changes, slice_columns
from postroom.filters.expression import Filter
from postroom.filters.matching.compile import build_groups, build_paths
from postroom.filters.matching.compiled_rows import Rows, build_rows, concatenate_rows
from postroom.filters.matching.ranked_batch import (
    RankedBatch,
    count_values,
    encode_text_columns,
    rank_batch,
    rank_messages,
)
from postroom.filters.matching.two_passes import Outcomes, Path, find_candidates
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

#: From this many candidates on, one message is checked with arrays instead of group by group.
MANY_CANDIDATES = 64


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
            part = columns if whole else slice_columns(columns, start, end)
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
        # Similar segments, and those that are small together, are merged.
        while kept and (kept[-1].live < _RATIO * size or kept[-1].live + size <= self._small):
            size += kept[-1].live
            parts = [kept.pop().rows(), *parts]
        self._segments = (*kept, Segment(concatenate_rows(parts)))
        self._pending, self._pending_rows, self._pending_row_ids = {}, [], set()

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

    def copy(self) -> SubscriptionIndex:
        """Return an index with the same subscriptions, which changes on its own. Both share the compiled segments."""
        with self._changing:
            self._compile()
            other = SubscriptionIndex(small=self._small, max_pending=self._max_pending)
            other._segments = self._segments
            return other


class Segment:
    """Compiled subscriptions, as arrays. Removing a subscription only marks it, in a copy that shares the other arrays.
    Merging the segment drops it."""

    def __init__(self, rows: Rows) -> None:
        self.slots = rows.slots
        self.ids = rows.ids
        self.live = len(rows.ids)
        #: What matches have cost because this segment is not merged with others, in messages of a large batch.
        self.wasted = 0.0
        self._alive: Bool = np.ones(len(rows.ids), np.bool_)
        self._groups = build_groups(rows)
        self._paths, self._second_pass = build_paths(self._groups, rows.slots)
        predicates = self._groups.predicates
        self._mask_slots: list[int] = np.unique(predicates.slot[predicates.bitwise_ands :]).tolist()
        #: The slots of each property, with their numbers. A property has several if it is compared as several types.
        self.slots_by_key: dict[str, list[tuple[int, Slot]]] = {}
        for number, slot in enumerate(rows.slots):
            self.slots_by_key.setdefault(slot.key, []).append((number, slot))
        self._paths_by_slot: list[list[Path]] = [[] for _ in rows.slots]
        for path in self._paths:
            self._paths_by_slot[path.features[0].slot].append(path)

    def __contains__(self, subscription: int) -> bool:
        position = int(self.ids.searchsorted(subscription))
        return position < len(self.ids) and bool(self.ids[position] == subscription and self._alive[position])

    def without(self, subscription: int) -> Segment:
        """Return a copy in which ``subscription`` is removed. Concurrent matches continue with the old segment."""
        changed = copy(self)
        changed._alive = self._alive.copy()
        changed._alive[self.ids.searchsorted(subscription)] = False
        changed.live = self.live - 1
        return changed

    def match(self, columns: Columns, rows: int, limit: int | None) -> tuple[Int64, Int64] | None:
        """Return message and subscription of every match: distinct, sorted by message and then by subscription. Return
        None if there may be more than ``limit``."""
        batch = rank_batch(self.slots, self._mask_slots, columns, rows)
        shared = batch.deduplicate()
        if shared is None:
            return self._match(batch, limit)
        batch, inverse = shared
        pairs = self._match(batch, limit)
        if pairs is None:
            return None
        found, ids = pairs
        starts = np.searchsorted(found, np.arange(batch.rows + 1))
        counts = (starts[1:] - starts[:-1])[inverse]
        ends = np.cumsum(counts)
        if limit is not None and ends[-1] > limit:
            return None
        positions = np.repeat(starts[inverse] - (ends - counts), counts) + np.arange(int(ends[-1]))
        return np.repeat(np.arange(rows), counts), ids.take(positions)

    def _match(self, batch: RankedBatch, limit: int | None) -> tuple[Int64, Int64] | None:
        matched = [np.empty(0, np.int64)]
        total = 0
        outcomes = Outcomes(self._groups.predicates, batch)
        for candidates in find_candidates(self._paths, batch):
            rows, groups = self._second_pass.check_candidates(outcomes, candidates)
            total += len(rows)
            if limit is not None and total > limit:
                return None
            matched.append(rows * len(self.ids) + self._groups.owner.take(groups))
        found = np.sort(np.concatenate(matched))
        # Two groups of one subscription may both match. They count once.
        messages, owners = np.divmod(found.compress(mark_changes(found)), max(1, len(self.ids)))
        if self.live < len(self.ids):
            alive = self._alive.take(owners)
            messages, owners = messages.compress(alive), owners.compress(alive)
        return messages, self.ids.take(owners)

    def match_one_by_one(self, columns: Columns, rows: int, limit: int | None) -> tuple[Int64, Int64] | None:
        """Return the same as ``match``. This is faster if most columns have few values."""
        found, total = [], 0
        for ranks, integers in rank_messages(self.slots_by_key, columns, rows):
            found.append(self._match_ranks(ranks, integers))
            total += len(found[-1])
            if limit is not None and total > limit:
                return None
        messages = np.repeat(np.arange(rows), [len(ids) for ids in found])
        return messages, np.array([id for ids in found for id in ids], np.int64)

    def match_one(self, promoted: Mapping[str, Value]) -> list[int]:
        """Return the subscriptions that one message matches, ascending."""
        ranks: dict[int, int] = {}
        integers: dict[int, int] = {}
        for key, value in promoted.items():
            for number, slot in self.slots_by_key.get(key, ()):
                if type(value) is slot.value_type.python_type:
                    ranks[number] = slot.constants.rank_value(value)
                    if number in self._mask_slots:
                        integers[number] = value  # type: ignore[assignment]
        return self._match_ranks(ranks, integers)

    def _match_ranks(self, ranks: Mapping[int, int], integers: Mapping[int, int]) -> list[int]:
        """Return the subscriptions that one message matches, by its ranks, and values for bitwise ANDs, by slot."""
        found = [path.find_candidates_of_one(ranks) for slot in ranks for path in self._paths_by_slot[slot]]
        candidates = [positions for positions in found if positions is not None]
        if not candidates:
            return []
        groups = self._find_matching_groups(self._second_pass.get_groups(candidates), ranks, integers)
        owners = sorted({self._groups.owner.item(group) for group in groups})
        return [self.ids.item(owner) for owner in owners if self._alive.item(owner)]

    def _find_matching_groups(self, groups: Int32, ranks: Mapping[int, int], integers: Mapping[int, int]) -> list[int]:
        if len(groups) < MANY_CANDIDATES:
            return [group for group in groups.tolist() if self._second_pass.is_match(ranks, integers, group)]
        batch = RankedBatch(
            rows=1,
            ranks=[np.array([ranks[slot]], np.int32) if slot in ranks else None for slot in range(len(self.slots))],
            integers={slot: np.array([integers.get(slot, 0)]) for slot in self._mask_slots},
        )
        outcomes = Outcomes(self._groups.predicates, batch)
        _, matched = self._second_pass.check_groups(outcomes, np.zeros(len(groups), np.int64), groups)
        return list(matched.tolist())

    def rows(self) -> Rows:
        """Convert the remaining subscriptions back to rows."""
        predicates, groups = self._groups.predicates, self._groups
        kept_groups = self._alive[groups.owner]
        group = np.repeat(np.arange(len(groups), dtype=np.int32), np.diff(groups.starts))
        kept = kept_groups[group]
        member = groups.members[kept]
        operand = np.concatenate((np.zeros(predicates.not_equals, np.int64), predicates.operand))
        return Rows(
            slots=self.slots,
            ids=self.ids[self._alive],
            owner=(np.cumsum(self._alive) - 1).astype(np.int32)[groups.owner[kept_groups]],
            group=(np.cumsum(kept_groups) - 1).astype(np.int32)[group[kept]],
            kind=predicates.kind()[member],
            slot=predicates.slot[member],
            low=predicates.low[member],
            high=predicates.high[member],
            operand=operand[member],
        )


#: ``Segment.match`` or ``Segment.match_one_by_one``.
MatchSegment = Callable[[Segment, Columns, int, int | None], tuple[Int64, Int64] | None]


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
