"""The requests that wait for responses in this process: of the callers of a host instance, or of a program.

    request = requests.add(request)                         # before the publish: its response may come at once
    requests.confirm(request, follows=is_repeated)          # after the publish
    ...
    request = requests.take_answered(instance_id, token)    # exactly one of response, timeout and cancellation gets it
    request.answer(answer)

A waiting request holds no thread, no transaction and no connection to the MessageBox. After a timeout or a cancellation
its instance subscription is removed, so that a late response is suspended (RR-05, RR-09).

The response to a request with an idempotency key is stored. If the response may come to another process, a request with
the same key *follows*: it waits until that response is stored.

Whoever knows the token of a request can answer it. So a token is random, and not derived from the id of the instance
that waits, which all hosts can read. It is in the request, for its receivers, and in the correlation values of the
subscription, which no host can read.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, TypeVar

from postroom.correlation_tokens import build_response_filter
from postroom.messagebox.connection import Connection, Precondition
from postroom.messagebox.storage.stored_responses import StoredResponse, StoredResponses
from postroom.messagebox.subscriptions import ServiceSubscriptions, SubscribingService

A = TypeVar("A")
T = TypeVar("T")

#: Responses come before other messages, because a caller waits.
_RESPONSE_PRIORITY = 1


def _create_token() -> str:
    """Return a new token for a request of this process."""
    return f"Svr:{socket.gethostname()};PID:{os.getpid()};RRUid:{uuid.uuid4()}"


@dataclass(kw_only=True, eq=False)
class WaitingRequest(Generic[A]):
    """A request that waits for its response, which is routed to the instance by the token."""

    unit: uuid.UUID
    """The unit of its publish. Requests with the same idempotency key have the same one."""
    deadline: float
    """When it stops waiting, by the monotonic clock."""
    digest: bytes | None = None
    """Of a request with an idempotency key: what the same key must come with again."""
    instance_id: uuid.UUID = field(default_factory=uuid.uuid4)
    token: str = field(default_factory=_create_token)
    """Random. A request that takes over from an earlier one with the same key gets the token of that one."""
    future: Future[A] = field(default_factory=Future)

    @property
    def has_key(self) -> bool:
        """True if it has an idempotency key. Its response is stored."""
        return self.digest is not None

    @property
    def is_wanted(self) -> bool:
        """True if somebody wants the response."""
        return not self.future.done()

    def answer(self, answer: A | BaseException) -> None:
        """Give an answer or an error to a request that was taken, unless its future has ended."""
        with suppress(InvalidStateError):
            if isinstance(answer, BaseException):
                self.future.set_exception(answer)
            else:
                self.future.set_result(answer)


R = TypeVar("R", bound=WaitingRequest[Any])


class WaitingRequests(ABC, Generic[R, A]):
    """Thread-safe. Each request is taken once: by its response, by its timeout, or by a cancellation."""

    def __init__(
        self, *, stored: StoredResponses, subscriptions: ServiceSubscriptions, wake: Callable[[], None]
    ) -> None:
        self._stored = stored
        self._subscriptions = subscriptions
        #: Lets the thread that calls ``check`` call it now.
        self._wake = wake
        self._lock = threading.Lock()
        self._waiting: dict[uuid.UUID, R] = {}
        #: The instances of requests whose response may come to another process.
        self._following: set[uuid.UUID] = set()
        self._to_remove: deque[R] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def waiting(self) -> list[R]:
        """The requests that wait now."""
        with self._lock:
            return list(self._waiting.values())

    def is_waiting(self, request: R) -> bool:
        with self._lock:
            return request.instance_id in self._waiting

    def add(self, request: R) -> R:
        """Let a request wait. Return the one that waits, which may be another one with the same key."""
        with self._lock:
            is_first = not self._waiting
            waiting = self._join(request)
            self._put(waiting)
        if is_first:
            self._wake()
        return waiting

    def build_response_wait(
        self,
        request: R,
        service: SubscribingService,
        *,
        for_host_instance: int | None = None,
        kept_for: timedelta | None = None,
    ) -> Precondition:
        """Return what creates the instance subscription for the response, as the request is published (RR-02)."""
        return self._subscriptions.build_response_wait(
            service,
            request.instance_id,
            build_response_filter(request.token),
            priority=_RESPONSE_PRIORITY,
            for_host_instance=for_host_instance,
            kept_for=kept_for,
        )

    def confirm(self, request: R, *, follows: bool) -> None:
        """Note that a request was published, or another one with its key if it ``follows``. Return at once."""
        with self._lock:
            is_waiting = request.instance_id in self._waiting
            if is_waiting and follows:
                self._following.add(request.instance_id)
        if not is_waiting:
            # It was cancelled, or its time was over, before the commit: the subscription was not there to be removed.
            self.forget(request)
        elif follows:
            self._wake()

    def take(self, instance_id: uuid.UUID) -> R | None:
        """Remove and return the request of an instance. Return None if it does not wait here any more."""
        with self._lock:
            return self._take(instance_id)

    def take_answered(self, instance_id: uuid.UUID, token: str | None) -> R | None:
        """Remove and return the request that a message with this token answers. Another host can queue any message for
        the instance, but does not know its token."""
        with self._lock:
            request = self._waiting.get(instance_id)
            return None if request is None or request.token != token else self._take(instance_id)

    def put_back(self, request: R) -> None:
        """Let a request wait again whose response is still in the MessageBox, unless nobody wants it any more. Return
        at once."""
        with self._lock:
            if request.is_wanted:
                self._put(request)
                if request.has_key:
                    self._following.add(request.instance_id)
                return
        self.forget(request)

    def forget(self, request: R) -> None:
        """Remove the subscription of a request that was taken without a response. Return at once."""
        self._to_remove.append(request)
        self._wake()

    def stop_waiting(self, request: R) -> R | None:
        """Take a request without a response, unless it has ended, and remove its subscription. Return at once."""
        taken = self.take(request.instance_id)
        if taken is not None:
            self.forget(taken)
        return taken

    def end(self, requests: Iterable[R], answer: A | BaseException) -> None:
        """Give an answer to requests that get no response here, unless they have ended."""
        for request in requests:
            if (taken := self.stop_waiting(request)) is not None:
                taken.answer(answer)

    def check(self) -> float | None:
        """End the requests whose time is over, answer those that follow others, and remove the subscriptions of those
        that have ended. Return the seconds until the next timeout, or None if no request waits."""
        now = time.monotonic()
        for request in self.waiting:
            if request.deadline <= now:
                self._expire(request, now)
        if self._following:
            self._call(self._answer_followers)
        self._remove_ended()
        deadlines = [request.deadline for request in self.waiting]
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None

    # -- what differs between the callers of a host instance and the requests of a program --------------------

    @abstractmethod
    def _call(self, work: Callable[[Connection], T]) -> T:
        """Call ``work`` with a connection to the MessageBox."""

    @abstractmethod
    def _build_timeout(self, request: R) -> A | BaseException: ...

    @abstractmethod
    def _build_lost(self) -> A | BaseException:
        """Return the answer to a request whose key was used before, if that response is not available."""

    @abstractmethod
    def _read_stored(self, connection: Connection, response: StoredResponse) -> A | BaseException: ...

    def _join(self, request: R) -> R:
        """Return the request that waits for this one. Called under the lock."""
        return request

    def _put(self, request: R) -> None:
        """Called under the lock."""
        self._waiting[request.instance_id] = request

    def _take(self, instance_id: uuid.UUID) -> R | None:
        """Called under the lock."""
        self._following.discard(instance_id)
        return self._waiting.pop(instance_id, None)

    def _expire(self, request: R, now: float) -> None:
        self.end([request], self._build_timeout(request))

    def _follow_awaited(self, connection: Connection, request: R, response: StoredResponse) -> None:
        """Decide about a request whose response is awaited, here or in another process."""

    def _remove(self, connection: Connection, request: R) -> None:
        self._subscriptions.complete(connection, request.instance_id)

    # -- on a connection ---------------------------------------------------------------------------------------

    def _answer_followers(self, connection: Connection) -> None:
        """Answer the requests whose response is stored now, or whose first request waits no longer."""
        following: defaultdict[uuid.UUID, list[R]] = defaultdict(list)
        with self._lock:
            for request in map(self._waiting.__getitem__, self._following):
                following[request.unit].append(request)
        for response in self._stored.find(connection, following):
            for request in following[response.unit]:
                if response.is_stored:
                    self.end([request], self._read_stored(connection, response))
                elif not response.is_awaited:
                    self.end([request], self._build_lost())
                else:
                    self._follow_awaited(connection, request, response)

    def _remove_ended(self) -> None:
        """Remove the subscriptions of requests that have ended."""
        while self._to_remove:
            self._call(lambda connection: self._remove(connection, self._to_remove[0]))
            self._to_remove.popleft()
