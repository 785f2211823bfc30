"""A segment of the subscription index: compiled subscriptions that never change, except that some are removed."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy

import numpy as np

from postroom.filters.columns import Bool, Columns, Int32, Int64, Slot, mark_changes
from postroom.filters.matching.compile import build_groups, build_paths
from postroom.filters.matching.compiled_rows import Rows
from postroom.filters.matching.ranked_batch import RankedBatch, rank_batch, rank_messages
from postroom.filters.matching.two_passes import Outcomes, Path, find_candidates
from postroom.values import Value

#: From this many candidates on, one message is checked with arrays instead of group by group.
MANY_CANDIDATES = 64


class Segment:
    """Subscriptions as arrays. Removing a subscription only marks it, in a copy that shares the other arrays. Merging
    the segment drops it."""

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
