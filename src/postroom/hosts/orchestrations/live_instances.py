"""The coroutines that a host instance keeps in memory, so that a busy instance is not replayed for each message."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict

from postroom.orchestrations.definition import Orchestration
from postroom.orchestrations.execution import Execution


class LiveInstances:
    """A bounded number of executions, each with the length of its journal."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._executions: OrderedDict[uuid.UUID, tuple[int, Execution]] = OrderedDict()

    def take(self, instance_id: uuid.UUID, orchestration: Orchestration, journal_length: int) -> Execution | None:
        """Return the execution if it runs this code and its journal has this length. Another host may have continued
        it."""
        with self._lock:
            length, execution = self._executions.pop(instance_id, (0, None))
        if execution is not None and (length != journal_length or execution.orchestration is not orchestration):
            execution.close()
            return None
        return execution

    def put(self, execution: Execution, journal_length: int) -> None:
        """Keep an execution. The one that was used longest ago is dropped if there are too many."""
        with self._lock:
            dropped = [self._executions.pop(execution.instance_id, None)]
            self._executions[execution.instance_id] = (journal_length, execution)
            if len(self._executions) > self._limit:
                dropped.append(self._executions.popitem(last=False)[1])
        for entry in dropped:
            if entry is not None:
                entry[1].close()

    def clear(self) -> None:
        with self._lock:
            entries = list(self._executions.values())
            self._executions.clear()
        for _, execution in entries:
            execution.close()

    def __len__(self) -> int:
        return len(self._executions)
