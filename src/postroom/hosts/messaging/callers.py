"""The callers that wait for responses at this host instance: of two-way receive locations.

    future = callers.add(caller)
    ...
    caller = callers.take_answered(instance_id, token)     # exactly one of response, timeout and cancellation gets it
    caller.answer(answer)

A waiting caller holds no thread and no connection to the MessageBox. After a timeout or a cancellation a loop removes
the subscription of the request, so that a late response is suspended (RR-05, RR-09). A request with an idempotency key
keeps waiting after its client has disconnected, and for some time after the timeout, so that the response is stored for
the repeated request.

A repeated request whose first caller waits at another host instance follows that one: the loop reads the stored
response of the first caller. If that host instance has ended, the repeated request takes over from it, together with a
response that arrived in the meantime.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum

from postroom.errors import KeyReused, PostroomError
from postroom.message import Body
from postroom.messagebox.configuration.endpoints import ReceiveLocation
from postroom.messagebox.connection import Connect, LazyConnection, transaction
from postroom.messagebox.storage.stored_responses import StoredResponse, StoredResponses
from postroom.messagebox.subscriptions import ServiceSubscriptions
from postroom.pipelines.documents.temporary_bodies import spool
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
    """A caller that waits. ``instance_id`` is the instance that its response is routed to, by its ``token``."""

    instance_id: uuid.UUID
    token: str
    """That of the first request with the same key, once this one has taken it over."""
    interchange_id: uuid.UUID
    location: ReceiveLocation
    deadline: float
    """When its connections get a timeout, by the monotonic clock."""
    kept_until: float
    """When it stops waiting. Later than the deadline if the request has an idempotency key."""
    digest: bytes | None = None
    """Of a request with an idempotency key. Its response is stored."""
    connections: int = 0
    """How many connections wait for the answer. ``Callers`` changes it under its lock."""
    needs_publish: bool = True
    """True until somebody publishes its request, and if it is not known whether that was committed."""
    future: Future[Answer] = field(default_factory=Future)

    def answer(self, answer: Answer) -> None:
        """Give an answer to a caller that was taken, unless its connection has ended."""
        with suppress(InvalidStateError):
            self.future.set_result(answer)


class Callers:
    """Thread-safe. Each caller is taken once: by its response, by its timeout, or by a cancellation."""

    def __init__(
        self, *, connect: Connect, subscriptions: ServiceSubscriptions, stored: StoredResponses, host_instance: int
    ) -> None:
        self._connection = LazyConnection(connect)
        self._subscriptions = subscriptions
        self._stored = stored
        self._host_instance = host_instance
        self._lock = threading.Lock()
        self._waiting: dict[uuid.UUID, Caller] = {}
        self._by_interchange: dict[uuid.UUID, Caller] = {}
        #: The instances of callers whose response may come to another host instance.
        self._following: set[uuid.UUID] = set()
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

    def add(self, caller: Caller) -> Caller:
        """Let a caller wait. Return the caller that waits for the same interchange already, or this one. Raise
        KeyReused if that one has another body."""
        with self._lock:
            is_first = not self._waiting
            waiting = self._by_interchange.get(caller.interchange_id, caller)
            if waiting.digest != caller.digest:
                raise KeyReused()
            self._by_interchange[caller.interchange_id] = waiting
            self._waiting[waiting.instance_id] = waiting
            if not waiting.connections:
                # Its clients have disconnected, or their time is over. This one has its own time.
                waiting.deadline = caller.deadline
                waiting.kept_until = max(waiting.kept_until, caller.kept_until)
            waiting.connections += 1
        if is_first:
            self.loop.wake()
        return waiting

    def start_publish(self, caller: Caller) -> bool:
        """Return True if the request of a caller is to be published now. Only one of its connections gets True."""
        with self._lock:
            needs_publish, caller.needs_publish = caller.needs_publish, False
            return needs_publish

    def publish_again(self, caller: Caller, error: BaseException) -> None:
        """Keep a caller with an idempotency key if it is not known whether its request was published. The repeated
        request publishes it again. The connections that wait get the error."""
        with self._lock:
            waiting = self._waiting.get(caller.instance_id)
            if waiting is not None:
                self._keep(replace(waiting, needs_publish=True))
        if waiting is not None:
            with suppress(InvalidStateError):
                waiting.future.set_exception(error)

    def take(self, instance_id: uuid.UUID) -> Caller | None:
        """Remove and return the caller of an instance. Return None if it does not wait here any more."""
        with self._lock:
            return self._take(instance_id)

    def take_answered(self, instance_id: uuid.UUID, token: str | None) -> Caller | None:
        """Remove and return the caller that a message with this token answers. Another host can queue any message for
        the instance, but does not know its token."""
        with self._lock:
            caller = self._waiting.get(instance_id)
            return None if caller is None or caller.token != token else self._take(instance_id)

    def _take(self, instance_id: uuid.UUID) -> Caller | None:
        caller = self._waiting.pop(instance_id, None)
        if caller is not None:
            self._by_interchange.pop(caller.interchange_id, None)
            self._following.discard(instance_id)
        return caller

    def follow(self, caller: Caller) -> None:
        """Let a caller wait for the response to the first request with its key. Return at once."""
        with self._lock:
            if caller.instance_id in self._waiting:
                self._following.add(caller.instance_id)
        self.loop.wake()

    def put_back(self, caller: Caller) -> None:
        """Let a caller that was taken wait again, unless its last connection has ended meanwhile. Return at once."""
        with self._lock:
            if caller.connections > 0 or caller.digest is not None:
                self._by_interchange[caller.interchange_id] = self._waiting[caller.instance_id] = caller
                if caller.digest is not None:
                    self._following.add(caller.instance_id)
                return
        self.forget(caller.instance_id)

    def cancel(self, caller: Caller) -> None:
        """Stop waiting if the last connection of the caller has ended (RR-09), unless its response will be stored.
        Return at once."""
        with self._lock:
            caller.connections -= 1
            is_wanted = caller.connections > 0 or caller.digest is not None
        if not is_wanted and self.take(caller.instance_id) is not None:
            self.forget(caller.instance_id)

    def forget(self, instance_id: uuid.UUID) -> None:
        """Remove the subscription of a caller that was taken without a response. Return at once."""
        self._to_remove.append(instance_id)
        self.loop.wake()

    def refuse_lost(self) -> None:
        """Answer the callers whose subscriptions are gone, because this host instance was declared dead. Requests with
        an idempotency key keep waiting, even if another host instance has taken them over."""
        with self._lock:
            kept = {instance_id for instance_id, caller in self._waiting.items() if caller.digest is not None}
            lost = self._waiting.keys() - kept
            self._following |= kept
        self._end(lost, Answer(missing=NoResponse.REFUSED))
        self.loop.wake()

    def close(self) -> None:
        """Answer all callers: this process ends. The subscriptions of requests with an idempotency key stay until the
        time for late responses is over."""
        for waiting in self.waiting:
            if (caller := self.take(waiting.instance_id)) is not None:
                caller.answer(Answer(missing=NoResponse.STOPPING))
                if caller.digest is None:
                    self._to_remove.append(caller.instance_id)
        with suppress(PostroomError):  # then they are removed with the host instance
            self._remove_subscriptions()
        self._connection.close()

    def _end(self, instances: Iterable[uuid.UUID], answer: Answer) -> None:
        for instance_id in instances:
            caller = self.take(instance_id)
            if caller is not None:
                self._to_remove.append(instance_id)
                caller.answer(answer)

    def _step(self) -> float:
        now = time.monotonic()
        with self._lock:
            expired = [instance_id for instance_id, caller in self._waiting.items() if caller.deadline <= now]
        for instance_id in expired:
            self._expire(instance_id, now)
        if self._following:
            self._answer_followers()
        self._remove_subscriptions()
        with self._lock:
            deadlines = [caller.deadline for caller in self._waiting.values()]
            longest = _FOLLOW_SECONDS if self._following else _MAX_SECONDS
        return max(0.0, min(longest, min(deadlines) - time.monotonic())) if deadlines else _IDLE_SECONDS

    def _expire(self, instance_id: uuid.UUID, now: float) -> None:
        """Answer a caller whose time is over. One with an idempotency key is kept without its connections, so that its
        late response is stored."""
        answer = Answer(missing=NoResponse.EXPIRED)
        with self._lock:
            caller = self._waiting.get(instance_id)
            if caller is None or caller.deadline > now:
                return  # it was answered, or a repeated request has joined it
            # A caller that follows another one has no subscription of its own.
            is_kept = caller.kept_until > now and instance_id not in self._following
            if is_kept:
                self._keep(caller)
        if is_kept:
            caller.answer(answer)
        else:
            self._end([instance_id], answer)

    def _keep(self, caller: Caller) -> None:
        """Let a copy of a caller wait without connections. Called under the lock."""
        kept = replace(caller, deadline=caller.kept_until, connections=0, future=Future())
        self._waiting[caller.instance_id] = self._by_interchange[caller.interchange_id] = kept

    def _remove_subscriptions(self) -> None:
        while self._to_remove:
            self._subscriptions.complete(self._connection.get(), self._to_remove[0])
            self._to_remove.popleft()

    def _answer_followers(self) -> None:
        """Answer the callers whose response is stored now, or whose request waits no longer. Take over the requests of
        host instances that have ended."""
        with self._lock:
            following = {self._waiting[instance_id].interchange_id: instance_id for instance_id in self._following}
        for response in self._stored.find(self._connection.get(), following):
            instance_id = following[response.unit]
            if response.is_stored:
                self._end([instance_id], self._read_answer(response))
            elif response.is_orphaned:
                self._take_over(instance_id, response.token)
            elif not response.is_awaited:
                self._end([instance_id], Answer(missing=NoResponse.LOST))
            elif response.instance_id == instance_id:
                self._stop_following(instance_id)  # no other host instance has taken it over

    def _read_answer(self, response: StoredResponse) -> Answer:
        if response.content_type is None:
            return Answer(missing=NoResponse.REFUSED)
        body = spool(self._stored.read_body(self._connection.get(), response.unit))
        return Answer(body=body, content_type=response.content_type)

    def _take_over(self, instance_id: uuid.UUID, token: str | None) -> None:
        with self._lock:
            caller = self._waiting.get(instance_id)
        if caller is None:
            return
        caller.token = token or caller.token  # before its response can come
        kept_for = timedelta(seconds=max(0.0, caller.kept_until - time.monotonic()))
        is_taken_over = transaction(
            self._connection.get(),
            lambda connection: self._stored.take_over_caller(
                connection,
                caller.interchange_id,
                instance_id=instance_id,
                host_instance=self._host_instance,
                kept_for=kept_for,
            ),
        )
        if is_taken_over:
            self._stop_following(instance_id)
        if not self.is_waiting(caller):
            self.forget(instance_id)

    def _stop_following(self, instance_id: uuid.UUID) -> None:
        """Let a caller wait for a response that is routed to its own instance, also for a late one."""
        with self._lock:
            self._following.discard(instance_id)
