"""A segment: subscriptions compiled into immutable arrays for both passes."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy

import numpy as np

from postroom.filters.columns import Columns
from postroom.filters.matching.first_pass import Path, build_paths
from postroom.filters.matching.groups import build_groups
from postroom.filters.matching.ranks import Bool, Int32, Int64, RankedBatch, Slot, changes, rank_batch
from postroom.filters.matching.rows import Rows
from postroom.filters.matching.second_pass import SecondPass
from postroom.values import Value

#: From this many candidates on, one message is checked with arrays instead of group by group.
MANY_CANDIDATES = 32


class Segment:
    """Subscriptions as arrays. Removing a subscription only marks it, in a copy that shares the other arrays. Merging
    the segment drops it."""

    def __init__(self, rows: Rows) -> None:
        self.slots = rows.slots
        self.ids = rows.ids
        self.live = len(rows.ids)
        self._alive: Bool = np.ones(len(rows.ids), np.bool_)
        self._groups = build_groups(rows)
        self._paths, answered = build_paths(self._groups, rows.slots)
        self._second_pass = SecondPass(self._groups, answered)
        predicates = self._groups.predicates
        self._masked: list[int] = np.unique(predicates.slot[predicates.bitwise_ands :]).tolist()
        self._slots_of: dict[str, list[tuple[int, type, Slot]]] = {}
        for number, slot in enumerate(rows.slots):
            self._slots_of.setdefault(slot.key, []).append((number, slot.value_type.python_type, slot))
        self._paths_of: list[list[Path]] = [[] for _ in rows.slots]
        for path in self._paths:
            self._paths_of[path.first.slot].append(path)

    def __contains__(self, subscription: int) -> bool:
        place = int(self.ids.searchsorted(subscription))
        return place < len(self.ids) and bool(self.ids[place] == subscription and self._alive[place])

    def without(self, subscription: int) -> Segment:
        """Return a copy in which ``subscription`` is removed. Concurrent matches continue with the old segment."""
        changed = copy(self)
        changed._alive = self._alive.copy()
        changed._alive[self.ids.searchsorted(subscription)] = False
        changed.live = self.live - 1
        return changed

    def match(self, columns: Columns, rows: int) -> tuple[Int64, Int64]:
        """Return message and subscription of every match: distinct, sorted by message and then by subscription."""
        batch = rank_batch(self.slots, self._masked, columns, rows)
        shared = batch.deduplicate()
        if shared is None:
            return self._match(batch)
        batch, alike = shared
        found, ids = self._match(batch)
        starts = np.searchsorted(found, np.arange(batch.rows + 1))
        counts = (starts[1:] - starts[:-1])[alike]
        ends = np.cumsum(counts)
        places = np.repeat(starts[alike] - (ends - counts), counts) + np.arange(int(ends[-1]))
        return np.repeat(np.arange(rows), counts), ids.take(places)

    def _match(self, batch: RankedBatch) -> tuple[Int64, Int64]:
        met = [np.empty(0, np.int64)]
        for path in self._paths:
            for rows, places in path.candidates(batch):
                rows, groups = self._second_pass.survivors(batch, path, rows, places)
                met.append(rows * len(self.ids) + self._groups.owner.take(groups))
        found = np.sort(np.concatenate(met))
        # Two groups of one subscription may both match. They count once.
        messages, owners = np.divmod(found.compress(changes(found)), max(1, len(self.ids)))
        if self.live < len(self.ids):
            alive = self._alive.take(owners)
            messages, owners = messages.compress(alive), owners.compress(alive)
        return messages, self.ids.take(owners)

    def match_one(self, promoted: Mapping[str, Value]) -> list[int]:
        """Return the subscriptions that one message matches, ascending."""
        ranks: dict[int, int] = {}
        integers: dict[int, int] = {}
        for key, value in promoted.items():
            for number, python_type, slot in self._slots_of.get(key, ()):
                if type(value) is python_type:
                    ranks[number] = slot.constants.rank_value(value)
                    if number in self._masked:
                        integers[number] = value  # type: ignore[assignment]
        candidates = []
        for number in ranks:
            for path in self._paths_of[number]:
                found = path.candidates_of_one(ranks)
                if found is not None and len(found):
                    candidates.append(found)
        owners = {
            self._groups.owner.item(group)
            for groups in candidates
            for group in self._met_by_one(groups, ranks, integers)
        }
        return [self.ids.item(owner) for owner in sorted(owners) if self._alive.item(owner)]

    def _met_by_one(self, groups: Int32, ranks: Mapping[int, int], integers: Mapping[int, int]) -> list[int]:
        if len(groups) < MANY_CANDIDATES:
            return [group for group in groups.tolist() if self._second_pass.met_by_one(ranks, integers, group)]
        batch = RankedBatch(
            rows=1,
            ranks=[np.array([ranks[slot]], np.int32) if slot in ranks else None for slot in range(len(self.slots))],
            integers={slot: np.array([integers.get(slot, 0)]) for slot in self._masked},
        )
        _, met = self._second_pass.met(batch, np.zeros(len(groups), np.int64), groups)
        return list(met.tolist())

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
