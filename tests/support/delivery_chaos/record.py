"""What happened during a run: orders that were published, messages that arrived, and faults. Thread-safe."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Order:
    """A published order. Numbers are unique, and each publisher publishes its orders one after the other."""

    number: int
    publisher: int
    region: str
    priority: int
    total: int
    started: float = 0.0
    """When its publisher called the client for the first time."""
    ended: float = 0.0
    """When the publish was accepted."""


@dataclass(kw_only=True)
class Arrival:
    """A message that a receiver has read to its end."""

    number: int
    at: float
    sender: int | None = None
    """The process that has sent it; None if it is not known."""
    message_id: str | None = None
    sequence: int | None = None
    """Its number in the order of an ordered port."""
    is_accepted: bool = False
    """True if the receiver has written a positive response."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a caller got for one attempt of its request."""

    kind: str
    """The status, or what happened instead of a response."""
    document: object = None
    """The body of a response with status 200."""
    started: float
    ended: float


@dataclass(kw_only=True)
class Call:
    """A request of a caller. With a key it is repeated until there is a response, and again after that."""

    number: int
    key: str | None
    is_from_program: bool = False
    answers: list[Answer] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A time during which something was killed, frozen or cut off."""

    host: str | None
    """The affected host, or None if all programs are affected."""
    pid: int | None = None
    """The process of the affected host instance."""
    started: float
    ended: float


@dataclass(kw_only=True)
class Record:
    orders: list[Order] = field(default_factory=list)
    arrivals: dict[str, list[Arrival]] = field(default_factory=lambda: defaultdict(list))
    """By subscriber, in the order in which they were read."""
    calls: list[Call] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    """How many attempts of callers got which kind of answer."""
    faults: list[Fault] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add_orders(self, orders: list[Order]) -> None:
        with self._lock:
            self.orders += orders

    def add_arrival(
        self,
        subscriber: str,
        number: int,
        *,
        sender: int | None = None,
        message_id: str | None = None,
        sequence: int | None = None,
    ) -> Arrival:
        """Record an arrival. The time is taken under the lock, so that the list is in the order of the times."""
        with self._lock:
            arrival = Arrival(
                number=number, at=time.monotonic(), sender=sender, message_id=message_id, sequence=sequence
            )
            self.arrivals[subscriber].append(arrival)
            return arrival

    def add_call(self, call: Call) -> None:
        with self._lock:
            self.calls.append(call)

    def add_answer(self, call: Call, kind: str, started: float, document: object = None) -> None:
        """Record what a caller got for an attempt that ends now."""
        with self._lock:
            call.answers.append(Answer(kind=kind, document=document, started=started, ended=time.monotonic()))
            self.answers[kind] += 1

    def add_fault(self, host: str | None, started: float, pid: int | None = None) -> None:
        """Record a fault that ends now."""
        with self._lock:
            self.faults.append(Fault(host=host, pid=pid, started=started, ended=time.monotonic()))

    def add_problem(self, text: str) -> None:
        with self._lock:
            self.problems.append(text)
