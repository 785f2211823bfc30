"""Stores the outcomes of messages in batches: all that were reported while the last batch was stored."""

from __future__ import annotations

import logging
import threading
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from postroom.clock import Clock
from postroom.hosts.dequeue.processing import Disposition, Outcome
from postroom.hosts.dequeue.work_buffer import WorkBuffer, shares_instance
from postroom.messagebox.connection import Connect, Connection, LazyConnection, transaction
from postroom.messagebox.queues import ClaimedMessage, HostQueues, Postponement, ScheduledRetry, Suspension
from postroom.processes.background_loop import BackgroundLoop

_log = logging.getLogger(__name__)

_BATCH_SIZE = 1000
_IDLE_SECONDS = 1.0


class Completer:
    """Collects outcomes from many threads and writes them to the MessageBox from one thread.

    Outcomes are buffered while the MessageBox is unavailable. If another host instance has taken over the claim of a
    message, its outcome finds no row and is counted as discarded.
    """

    def __init__(
        self,
        *,
        connect: Connect,
        queues: HostQueues,
        buffer: WorkBuffer,
        on_scheduled: Callable[[timedelta], None],
        on_unblocked: Callable[[], None],
        clock: Clock | None = None,
    ) -> None:
        self._connection = LazyConnection(connect)
        self._queues = queues
        self._buffer = buffer
        self._on_scheduled = on_scheduled
        self._on_unblocked = on_unblocked
        self._clock = clock
        self._outcomes: deque[tuple[ClaimedMessage, Outcome]] = deque()
        self._batch: list[tuple[ClaimedMessage, Outcome]] = []
        self._idle = False
        #: The number of messages by outcome: completed, finished, released, retried, postponed, suspended, discarded.
        self.counts: Counter[str] = Counter()
        self._counting = threading.Lock()
        self.loop = BackgroundLoop("complete", self._step)

    def store(self, claimed: ClaimedMessage, outcome: Outcome) -> None:
        """Queue an outcome to be stored. Return at once."""
        if outcome is Disposition.FINISHED:
            # There is nothing to write, and waking the loop would take longer than this.
            self._finish([(claimed, outcome)], Counter({outcome.value: 1}))
            return
        self._outcomes.append((claimed, outcome))
        if self._idle:
            self.loop.wake()

    def close(self) -> None:
        self._connection.close()

    def _step(self) -> float:
        self._batch = self._batch or self._take()
        if not self._batch:
            return _IDLE_SECONDS
        counts = self._write(_group_by_claim(self._batch))
        finished, self._batch = self._batch, []
        self._finish(finished, counts)
        return 0.0

    def _finish(self, finished: Sequence[tuple[ClaimedMessage, Outcome]], counts: Counter[str]) -> None:
        """Count the messages whose outcomes are stored, and make room for others."""
        with self._counting:
            self.counts.update(counts)
        for claimed, outcome in finished:
            if isinstance(outcome, Suspension):
                ids = claimed.log_ids
                if outcome.instance_id is not None:
                    ids["instance_id"] = outcome.instance_id
                _log.warning("message %s was suspended: %s", claimed.message_id, outcome.code, extra=ids)
        self._buffer.finish([claimed.seq for claimed, _ in finished])
        scheduled = (outcome.delay for _, outcome in finished if isinstance(outcome, ScheduledRetry | Postponement))
        if delays := [delay for delay in scheduled if delay is not None]:
            self._on_scheduled(min(delays))
        if any(shares_instance(claimed) for claimed, _ in finished):
            self._on_unblocked()

    def _take(self) -> list[tuple[ClaimedMessage, Outcome]]:
        if not self._outcomes:
            self._idle = True
            # Check again, because a thread may have read the flag just before it was set.
            if not self._outcomes:
                return []
        self._idle = False
        return [self._outcomes.popleft() for _ in range(min(len(self._outcomes), _BATCH_SIZE))]

    def _write(self, claims: dict[uuid.UUID, _Outcomes]) -> Counter[str]:
        calls = list(self._calls(claims))

        def write(connection: Connection) -> Counter[str]:
            counts = Counter(name for outcomes in claims.values() for name in outcomes.others)
            for name, call in calls:
                counts[name] += call(connection)
            return counts

        connection = self._connection.get()
        # A single statement needs no transaction, and saves its round trips.
        counts = write(connection) if len(calls) <= 1 else transaction(connection, write)
        counts["discarded"] += sum(outcomes.size for outcomes in claims.values()) - counts.total()
        return counts

    def _calls(self, claims: dict[uuid.UUID, _Outcomes]) -> Iterator[tuple[str, Callable[[Connection], int]]]:
        """Yield the calls that store the outcomes, each with the name that its rows are counted under."""
        queues, now = self._queues, self._clock() if self._clock else None
        if completed := {claim_id: outcomes.completed for claim_id, outcomes in claims.items() if outcomes.completed}:
            yield "completed", partial(queues.complete_claims, claims=completed)
        for claim_id, outcomes in claims.items():
            if outcomes.released:
                yield "released", partial(queues.release, claim_id=claim_id, seqs=outcomes.released)
            if outcomes.retries:
                yield "retried", partial(queues.retry, claim_id=claim_id, retries=outcomes.retries, now=now)
            if outcomes.postponements:
                postponements = outcomes.postponements
                yield "postponed", partial(queues.postpone, claim_id=claim_id, postponements=postponements, now=now)
            if outcomes.suspensions:
                suspensions = outcomes.suspensions
                yield "suspended", partial(queues.suspend, claim_id=claim_id, suspensions=suspensions, now=now)


@dataclass
class _Outcomes:
    """The outcomes of one claim, by kind."""

    completed: list[int] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    retries: dict[int, ScheduledRetry] = field(default_factory=dict)
    postponements: dict[int, Postponement] = field(default_factory=dict)
    suspensions: dict[int, Suspension] = field(default_factory=dict)
    #: Outcomes that nothing is stored for.
    others: list[str] = field(default_factory=list)

    @property
    def size(self) -> int:
        stored = (self.completed, self.released, self.retries, self.postponements, self.suspensions)
        return sum(map(len, stored)) + len(self.others)


def _group_by_claim(batch: Iterable[tuple[ClaimedMessage, Outcome]]) -> dict[uuid.UUID, _Outcomes]:
    claims: dict[uuid.UUID, _Outcomes] = {}
    claim_id, outcomes = None, _Outcomes()
    for claimed, outcome in batch:
        if claimed.claim_id is not claim_id:  # mostly the same as before; hashing an id is slow
            claim_id = claimed.claim_id
            outcomes = claims.setdefault(claim_id, _Outcomes())
        if outcome is Disposition.COMPLETE:
            outcomes.completed.append(claimed.seq)
        elif isinstance(outcome, ScheduledRetry):
            outcomes.retries[claimed.seq] = outcome
        elif isinstance(outcome, Postponement):
            outcomes.postponements[claimed.seq] = outcome
        elif isinstance(outcome, Suspension):
            outcomes.suspensions[claimed.seq] = outcome
        elif outcome is Disposition.RELEASE:
            outcomes.released.append(claimed.seq)
        else:
            outcomes.others.append(outcome.value)
    return claims
