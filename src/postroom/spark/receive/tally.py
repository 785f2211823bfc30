"""The tally of a receive stream: how many interchanges were received, and what became of them."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from postroom.agent.receiving.document_batch import Received

#: The name of the tally among the metrics of a streaming query.
TALLY = "tally"
#: What is counted: files, messages published, instances suspended, failures that became error messages, messages
#: dropped because they have no authenticated originator, and files without any document.
TALLIED = ("files", "published", "suspended", "routed", "dropped", "empty")
#: The rows that a task returns: the tally of each interchange.
TALLY_SCHEMA = ", ".join(["interchange_id string", *(f"{name} long" for name in TALLIED)])
_TALLY = pa.schema([("interchange_id", pa.string()), *((name, pa.int64()) for name in TALLIED)])

_WINDOW = 10.0


def tally_of(received: Sequence[Received]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {
                "interchange_id": str(one.interchange_id),
                "files": int(not one.unfinished),
                **{name: int(getattr(one, name)) for name in TALLIED[1:]},
            }
            for one in received
        ],
        schema=_TALLY,
    )


def in_words(tally: Mapping[str, int]) -> str:
    """Return a tally as the log shows it."""
    text = "{files:,} files, {published:,} messages published, {suspended:,} suspended, {routed:,} failures routed"
    return (text + ", {dropped:,} dropped, {empty:,} files empty").format_map(Counter(tally))


class Rate:
    """Messages per second over the last ten seconds. Used by several threads: a deque is safe for that."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._started = monotonic()
        self._counts: deque[tuple[float, int]] = deque()

    def add(self, count: int) -> None:
        self._counts.append((self._monotonic(), count))

    def per_second(self) -> float:
        """Return the rate over the window, or since the start if that is shorter. Rounded, so that it settles."""
        now = self._monotonic()
        while self._counts and self._counts[0][0] < now - _WINDOW:
            self._counts.popleft()
        elapsed = max(1.0, min(_WINDOW, now - self._started))
        return round(sum(count for _, count in tuple(self._counts)) / elapsed, 1)
