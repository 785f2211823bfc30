"""The coroutines that a host instance keeps in memory, so that a busy instance is not replayed for each message."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from dataclasses import dataclass

from postroom.orchestrations.definition import Orchestration
from postroom.orchestrations.execution import Execution


@dataclass(frozen=True, kw_only=True)
class _Entry:
    journal_length: int
    size: int
    execution: Execution


class LiveInstances:
    """At most ``limit`` executions that hold about ``max_size`` bytes together: the results of their steps, their
    messages and their states. The one that was used last is kept even if it is larger."""

    def __init__(self, limit: int, *, max_size: int) -> None:
        self._limit = limit
        self._max_size = max_size
        self._lock = threading.Lock()
        self._entries: OrderedDict[uuid.UUID, _Entry] = OrderedDict()
        #: The number of bytes that they hold, approximately.
        self.size = 0

    def take(self, instance_id: uuid.UUID, orchestration: Orchestration, journal_length: int) -> Execution | None:
        """Return the execution if it runs this code and its journal has this length. Another host may have continued
        it."""
        with self._lock:
            entry = self._remove(instance_id) if instance_id in self._entries else None
        if entry is None:
            return None
        if entry.journal_length != journal_length or entry.execution.orchestration is not orchestration:
            entry.execution.close()
            return None
        return entry.execution

    def put(self, execution: Execution, journal_length: int) -> None:
        """Keep an execution. Those that were used longest ago are dropped if there are too many, or they are too
        large."""
        entry = _Entry(journal_length=journal_length, size=execution.held_size, execution=execution)
        dropped: list[_Entry] = []
        with self._lock:
            if execution.instance_id in self._entries:
                dropped.append(self._remove(execution.instance_id))
            self._entries[execution.instance_id] = entry
            self.size += entry.size
            while len(self._entries) > self._limit or (self.size > self._max_size and len(self._entries) > 1):
                dropped.append(self._remove(next(iter(self._entries))))
        for one in dropped:
            one.execution.close()

    def clear(self) -> None:
        with self._lock:
            entries = [self._remove(instance_id) for instance_id in list(self._entries)]
        for entry in entries:
            entry.execution.close()

    def __len__(self) -> int:
        return len(self._entries)

    def _remove(self, instance_id: uuid.UUID) -> _Entry:
        entry = self._entries.pop(instance_id)
        self.size -= entry.size
        return entry
