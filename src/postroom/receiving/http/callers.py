"""The callers that wait for responses at this host instance: of two-way receive locations.

A request with an idempotency key keeps waiting after its client has disconnected, and for some time after the timeout,
so that the response is stored for the repeated request. A repeated request joins the caller that waits here. If its
first caller waits at another host instance, it follows that one. If that host instance has ended, it takes over from
it, together with a response that arrived in the meantime.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import TypeVar

from postroom.agent.waiting_requests import WaitingRequest, WaitingRequests
from postroom.errors import KeyReused, PostroomError
from postroom.message import Body
from postroom.messagebox.connection import Connect, Connection, LazyConnection, transaction
from postroom.messagebox.storage.stored_responses import StoredResponse, StoredResponses
from postroom.messagebox.subscriptions import ServiceSubscriptions
from postroom.pipelines.documents.temporary_bodies import spool
from postroom.ports.receive_locations import ReceiveLocation
from postroom.processes.background_loop import BackgroundLoop

T = TypeVar("T")
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
class Caller(WaitingRequest[Answer]):
    """A caller that waits. Its unit is its interchange. At its deadline its connections get a timeout."""

    location: ReceiveLocation
    kept_until: float
    """When it stops waiting. Later than the deadline if the request has an idempotency key."""
    connections: int = 0
    """How many connections wait for the answer. ``Callers`` changes it under its lock."""
    needs_publish: bool = True
    """True until somebody publishes its request, and if it is not known whether that was committed."""

    @property
    def is_wanted(self) -> bool:
        return self.has_key or self.connections > 0


class Callers(WaitingRequests[Caller, Answer]):
    """The callers of one host instance."""

    def __init__(
        self, *, connect: Connect, subscriptions: ServiceSubscriptions, stored: StoredResponses, host_instance: int
    ) -> None:
        self.loop = BackgroundLoop("callers", self._step)
        super().__init__(stored=stored, subscriptions=subscriptions, wake=self.loop.wake)
        self._connection = LazyConnection(connect)
        self._host_instance = host_instance
        self._by_unit: dict[uuid.UUID, Caller] = {}

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
            waiting.answer(error)

    def cancel(self, caller: Caller) -> None:
        """Stop waiting if the last connection of the caller has ended (RR-09), unless its response will be stored.
        Return at once."""
        with self._lock:
            caller.connections -= 1
            is_wanted = caller.is_wanted
        if not is_wanted:
            self.stop_waiting(caller)

    def refuse_lost(self) -> None:
        """Answer the callers whose subscriptions are gone, because this host instance was declared dead. Requests with
        an idempotency key keep waiting, even if another host instance has taken them over."""
        with self._lock:
            lost = [caller for caller in self._waiting.values() if not caller.has_key]
            self._following |= {caller.instance_id for caller in self._waiting.values() if caller.has_key}
        self.end(lost, Answer(missing=NoResponse.REFUSED))
        self._wake()

    def close(self) -> None:
        """Answer all callers: this process ends. The subscriptions of requests with an idempotency key stay until the
        time for late responses is over."""
        for caller in self.waiting:
            if caller.has_key and (taken := self.take(caller.instance_id)) is not None:
                taken.answer(Answer(missing=NoResponse.STOPPING))
        self.end(self.waiting, Answer(missing=NoResponse.STOPPING))
        with suppress(PostroomError):  # then they are removed with the host instance
            self._remove_ended()
        self._connection.close()

    def _step(self) -> float:
        seconds = self.check()
        if seconds is None:
            return _IDLE_SECONDS
        return min(_FOLLOW_SECONDS if self._following else _MAX_SECONDS, seconds)

    def _call(self, work: Callable[[Connection], T]) -> T:
        return work(self._connection.get())

    def _join(self, caller: Caller) -> Caller:
        """Return the caller that waits for the same interchange already, or this one. Raise KeyReused if that one has
        another body."""
        waiting = self._by_unit.get(caller.unit, caller)
        if waiting.digest != caller.digest:
            raise KeyReused()
        if not waiting.connections:
            # Its clients have disconnected, or their time is over. This one has its own time.
            waiting.deadline = caller.deadline
            waiting.kept_until = max(waiting.kept_until, caller.kept_until)
        waiting.connections += 1
        return waiting

    def _put(self, caller: Caller) -> None:
        super()._put(caller)
        self._by_unit[caller.unit] = caller

    def _take(self, instance_id: uuid.UUID) -> Caller | None:
        caller = super()._take(instance_id)
        if caller is not None:
            self._by_unit.pop(caller.unit, None)
        return caller

    def _keep(self, caller: Caller) -> None:
        """Let a copy of a caller wait without connections. Called under the lock."""
        self._put(replace(caller, deadline=caller.kept_until, connections=0, future=Future()))

    def _expire(self, request: Caller, now: float) -> None:
        """Answer a caller whose time is over. One with an idempotency key is kept without its connections, so that its
        late response is stored."""
        with self._lock:
            caller = self._waiting.get(request.instance_id)
            if caller is None or caller.deadline > now:
                return  # it was answered, or a repeated request has joined it
            # A caller that follows another one has no subscription of its own.
            is_kept = caller.kept_until > now and caller.instance_id not in self._following
            if is_kept:
                self._keep(caller)
        if is_kept:
            caller.answer(self._build_timeout(caller))
        else:
            super()._expire(caller, now)

    def _build_timeout(self, request: Caller) -> Answer:
        return Answer(missing=NoResponse.EXPIRED)

    def _build_lost(self) -> Answer:
        return Answer(missing=NoResponse.LOST)

    def _read_stored(self, connection: Connection, response: StoredResponse) -> Answer:
        if response.content_type is None:
            return Answer(missing=NoResponse.REFUSED)
        body = spool(self._stored.read_body(connection, response.unit))
        return Answer(body=body, content_type=response.content_type)

    def _follow_awaited(self, connection: Connection, request: Caller, response: StoredResponse) -> None:
        """Take over the request of a host instance that has ended. Stop following if no other one has taken it over."""
        with self._lock:
            caller = self._waiting.get(request.instance_id)
        if caller is None:
            return
        is_here = response.instance_id == caller.instance_id
        if response.is_orphaned:
            caller.token = response.token or caller.token  # before its response can come
            is_here = transaction(connection, lambda it: self._take_over(it, caller))
            if not self.is_waiting(caller):
                self.forget(caller)
        if is_here:
            # Its response is routed to its own instance now, also a late one.
            with self._lock:
                self._following.discard(caller.instance_id)

    def _take_over(self, connection: Connection, caller: Caller) -> bool:
        return self._stored.take_over_caller(
            connection,
            caller.unit,
            instance_id=caller.instance_id,
            host_instance=self._host_instance,
            kept_for=timedelta(seconds=max(0.0, caller.kept_until - time.monotonic())),
        )
