"""Stores the outcomes of messages, as many at a time as came together while the last ones were stored."""

from __future__ import annotations

import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from postroom.background_loop import BackgroundLoop
from postroom.clock import Clock
from postroom.hosts.dequeue.outcomes import Outcome, Verdict
from postroom.hosts.dequeue.work_in_hand import WorkInHand
from postroom.messagebox.connection import Connect, Connection, LazyConnection, transaction
from postroom.messagebox.queues import ClaimedMessage, HostQueues, Retry, Suspension

_AT_A_TIME = 1000
_PATIENCE = 1.0


class Completer:
    """Outcomes go in from many threads and into the MessageBox from one.

    Nothing is lost while the MessageBox is away: outcomes are kept, and stored when it is back. An outcome whose claim
    was taken over meanwhile finds no row; it is discarded and counted.
    """

    def __init__(
        self,
        *,
        connect: Connect,
        queues: HostQueues,
        work: WorkInHand,
        scheduled: Callable[[timedelta], None],
        settled: Callable[[], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._connection = LazyConnection(connect)
        self._queues = queues
        self._work = work
        self._scheduled = scheduled
        self._settled = settled
        self._clock = clock
        self._outcomes: deque[tuple[ClaimedMessage, Outcome]] = deque()
        self._batch: list[tuple[ClaimedMessage, Outcome]] = []
        self._idle = False
        #: How many messages came to which end: completed, settled, released, retried, suspended, discarded.
        self.counts: Counter[str] = Counter()
        self.loop = BackgroundLoop("complete", self._step)

    def store(self, claimed: ClaimedMessage, outcome: Outcome) -> None:
        """Takes note; returns at once."""
        self._outcomes.append((claimed, outcome))
        if self._idle:
            self.loop.wake()

    def close(self) -> None:
        self._connection.close()

    def _step(self) -> float:
        self._batch = self._batch or self._take()
        if not self._batch:
            return _PATIENCE
        self.counts += self._write(_by_claim(self._batch))
        settled, self._batch = self._batch, []
        self._work.settle([claimed.seq for claimed, _ in settled])
        if delays := [outcome.delay for _, outcome in settled if isinstance(outcome, Retry)]:
            self._scheduled(min(delays))
        if self._settled is not None:
            self._settled()
        return 0.0

    def _take(self) -> list[tuple[ClaimedMessage, Outcome]]:
        if not self._outcomes:
            self._idle = True
            # Asked again, because a thread may have looked at the flag just before it was set.
            if not self._outcomes:
                return []
        self._idle = False
        return [self._outcomes.popleft() for _ in range(min(len(self._outcomes), _AT_A_TIME))]

    def _write(self, claims: dict[uuid.UUID, _Outcomes]) -> Counter[str]:
        calls = list(self._calls(claims))

        def write(connection: Connection) -> Counter[str]:
            counts = Counter(name for given in claims.values() for name in given.others)
            for name, call in calls:
                counts[name] += call(connection)
            return counts

        connection = self._connection.get()
        # What is one statement needs no transaction around it, and none of its waits.
        counts = write(connection) if len(calls) <= 1 else transaction(connection, write)
        counts["discarded"] += sum(given.size for given in claims.values()) - counts.total()
        return counts

    def _calls(self, claims: dict[uuid.UUID, _Outcomes]) -> Iterator[tuple[str, Callable[[Connection], int]]]:
        """What is to be called, and what it counts."""
        queues, now = self._queues, self._clock() if self._clock else None
        if completed := {claim_id: given.completed for claim_id, given in claims.items() if given.completed}:
            yield "completed", partial(queues.complete_claims, claims=completed)
        for claim_id, given in claims.items():
            if given.released:
                yield "released", partial(queues.release, claim_id=claim_id, seqs=given.released)
            if given.retries:
                yield "retried", partial(queues.retry, claim_id=claim_id, retries=given.retries, now=now)
            if given.suspensions:
                yield "suspended", partial(queues.suspend, claim_id=claim_id, suspensions=given.suspensions, now=now)


@dataclass
class _Outcomes:
    """The outcomes of one claim, sorted by what is to be done."""

    completed: list[int] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    retries: dict[int, Retry] = field(default_factory=dict)
    suspensions: dict[int, Suspension] = field(default_factory=dict)
    #: What needs nothing stored.
    others: list[str] = field(default_factory=list)

    @property
    def size(self) -> int:
        stored = (self.completed, self.released, self.retries, self.suspensions)
        return sum(map(len, stored)) + len(self.others)


def _by_claim(batch: Iterable[tuple[ClaimedMessage, Outcome]]) -> dict[uuid.UUID, _Outcomes]:
    claims: dict[uuid.UUID, _Outcomes] = {}
    claim_id, of_claim = None, _Outcomes()
    for claimed, outcome in batch:
        if claimed.claim_id is not claim_id:  # mostly the same as before; hashing an id is slow
            claim_id = claimed.claim_id
            of_claim = claims.setdefault(claim_id, _Outcomes())
        if outcome is Verdict.COMPLETE:
            of_claim.completed.append(claimed.seq)
        elif isinstance(outcome, Retry):
            of_claim.retries[claimed.seq] = outcome
        elif isinstance(outcome, Suspension):
            of_claim.suspensions[claimed.seq] = outcome
        elif outcome is Verdict.RELEASE:
            of_claim.released.append(claimed.seq)
        else:
            of_claim.others.append(outcome.value)
    return claims
