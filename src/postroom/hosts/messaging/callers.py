"""The callers that wait for responses at this host instance: of two-way receive locations.

    future = callers.add(caller)
    ...
    caller = callers.take(instance_id)      # exactly one of response, timeout and cancellation gets it
    caller.answer(answer)

A waiting caller holds no thread and no connection to the MessageBox. After a timeout or a cancellation a loop removes
the subscription of the request, so that a late response is suspended (RR-05, RR-09). A request with an idempotency key
waits on after its client has disconnected, so that the response is stored for the repeated request.

A repeated request whose first caller waits at another host instance follows that one: the loop reads the stored
response of the first caller.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

from postroom.message import Body, Bytes
from postroom.messagebox.configuration.endpoints import ReceiveLocation
from postroom.messagebox.connection import Connect, LazyConnection
from postroom.messagebox.queues import HostQueues
from postroom.messagebox.subscriptions import ServiceSubscriptions
from postroom.processes.background_loop import BackgroundLoop

#: While callers wait, the loop checks at least this often whether one has waited for too long.
_MAX_SECONDS, _IDLE_SECONDS = 1.0, 60.0
#: How often the loop looks for the responses of callers that wait at other host instances.
_FOLLOW_SECONDS = 0.2


class NoResponse(Enum):
    """Why a caller gets no response."""

    EXPIRED = "expired"
    #: A negative acknowledgement: the request, or the processing of its response, has failed.
    REFUSED = "refused"
    STOPPING = "stopping"
    #: A request with the same idempotency key was received before, and its response is not available.
    LOST = "lost"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The response of a caller, or the reason why there is none."""

    body: Body | None = None
    content_type: str = ""
    missing: NoResponse | None = None


@dataclass(kw_only=True, eq=False)
class Caller:
    """A caller that waits. ``instance_id`` is the instance that its response is routed to."""

    instance_id: uuid.UUID
    interchange_id: uuid.UUID
    location: ReceiveLocation
    deadline: float
    """When it stops to wait, by the monotonic clock."""
    digest: bytes | None = None
    """Of a request with an idempotency key. Its response is stored."""
    connections: int = 0
    """How many connections wait for the answer. ``Callers`` changes it under its lock."""
    future: Future[Answer] = field(default_factory=Future)

    def answer(self, answer: Answer) -> None:
        """Give an answer to a caller that was taken, unless its connection has ended."""
        with suppress(InvalidStateError):
            self.future.set_result(answer)


class Callers:
    """Thread-safe. Each caller is taken once: by its response, by its timeout, or by a cancellation."""

    def __init__(self, *, connect: Connect, subscriptions: ServiceSubscriptions, queues: HostQueues) -> None:
        self._connection = LazyConnection(connect)
        self._subscriptions = subscriptions
        self._queues = queues
        self._lock = threading.Lock()
        self._waiting: dict[uuid.UUID, Caller] = {}
        self._by_interchange: dict[uuid.UUID, Caller] = {}
        #: The instance of the first request with the same key, by the instance of the caller that follows it.
        self._followed: dict[uuid.UUID, uuid.UUID] = {}
        self._to_remove: deque[uuid.UUID] = deque()
        self.loop = BackgroundLoop("callers", self._step)

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def waiting(self) -> list[Caller]:
        """The callers that wait now."""
        with self._lock:
            return list(self._waiting.values())

    def is_waiting(self, caller: Caller) -> bool:
        with self._lock:
            return caller.instance_id in self._waiting

    def count_connections(self, caller: Caller) -> int:
        """Return how many connections wait for the answer of this caller."""
        with self._lock:
            return caller.connections if caller.instance_id in self._waiting else 0

    def add(self, caller: Caller) -> Caller:
        """Let a caller wait. Return the caller that waits for the same interchange already, or this one."""
        with self._lock:
            is_first = not self._waiting
            waiting = self._by_interchange.setdefault(caller.interchange_id, caller)
            self._waiting[waiting.instance_id] = waiting
            waiting.connections += 1
        if is_first:
            self.loop.wake()
        return waiting

    def take(self, instance_id: uuid.UUID) -> Caller | None:
        """Remove and return the caller of an instance. Return None if it does not wait here any more."""
        with self._lock:
            caller = self._waiting.pop(instance_id, None)
            if caller is not None:
                self._by_interchange.pop(caller.interchange_id, None)
                self._followed.pop(instance_id, None)
            return caller

    def follow(self, caller: Caller, first_instance_id: uuid.UUID) -> None:
        """Let a caller wait for the response to the first request with its key. Return at once."""
        with self._lock:
            if caller.instance_id in self._waiting:
                self._followed[caller.instance_id] = first_instance_id
        self.loop.wake()

    def put_back(self, caller: Caller) -> None:
        """Let a caller wait again that was taken, unless its last connection has ended meanwhile. Return at once."""
        with self._lock:
            if caller.connections > 0 or caller.digest is not None:
                self._by_interchange[caller.interchange_id] = self._waiting[caller.instance_id] = caller
                return
        self.forget(caller.instance_id)

    def cancel(self, caller: Caller) -> None:
        """Stop waiting if the last connection of the caller has ended (RR-09), unless its response will be stored.
        Return at once."""
        with self._lock:
            caller.connections -= 1
            is_stored = caller.digest is not None and caller.instance_id not in self._followed
            is_wanted = caller.connections > 0 or is_stored
        if not is_wanted and self.take(caller.instance_id) is not None:
            self.forget(caller.instance_id)

    def forget(self, instance_id: uuid.UUID) -> None:
        """Remove the subscription of a caller that was taken without a response. Return at once."""
        self._to_remove.append(instance_id)
        self.loop.wake()

    def refuse_all(self) -> None:
        """Answer all callers: their subscriptions are gone, because this host instance was declared dead."""
        self._end(list(self._waiting), NoResponse.REFUSED)

    def close(self) -> None:
        """Answer all callers: this process ends. Their subscriptions are removed with the host instance."""
        self._end(list(self._waiting), NoResponse.STOPPING)
        self._connection.close()

    def _end(self, instances: Iterable[uuid.UUID], reason: NoResponse) -> None:
        for instance_id in instances:
            caller = self.take(instance_id)
            if caller is not None:
                self._to_remove.append(instance_id)
                caller.answer(Answer(missing=reason))

    def _step(self) -> float:
        now = time.monotonic()
        with self._lock:
            expired = [instance_id for instance_id, caller in self._waiting.items() if caller.deadline <= now]
        self._end(expired, NoResponse.EXPIRED)
        if self._followed:
            self._answer_followers()
        while self._to_remove:
            self._subscriptions.complete(self._connection.get(), self._to_remove[0])
            self._to_remove.popleft()
        with self._lock:
            deadlines = [caller.deadline for caller in self._waiting.values()]
            longest = _FOLLOW_SECONDS if self._followed else _MAX_SECONDS
        return max(0.0, min(longest, min(deadlines) - time.monotonic())) if deadlines else _IDLE_SECONDS

    def _answer_followers(self) -> None:
        """Answer the callers that follow a request whose response is stored now, or whose caller waits no longer."""
        with self._lock:
            followers = {self._waiting[follower]: first for follower, first in self._followed.items()}
        by_interchange = {caller.interchange_id: caller for caller in followers}
        requests = {caller.interchange_id: first for caller, first in followers.items()}
        for interchange_id, is_awaited, content_type, body in self._queues.read_responses(
            self._connection.get(), requests
        ):
            if is_awaited and body is None:
                continue
            answer = Answer(missing=NoResponse.LOST)
            if body is not None:
                answer = Answer(body=Bytes(body), content_type=content_type)
            caller = self.take(by_interchange[interchange_id].instance_id)
            if caller is not None:
                caller.answer(answer)
