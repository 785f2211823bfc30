"""The callers of two-way receive locations: their requests are published, and they wait here for the responses.

A request carries a token. The instance subscription for the response with the same token commits together with the
request, so that no response can be missed (RR-01, RR-02). A request that fails is suspended and cannot be resumed
(RR-12), because its caller is gone by then.

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
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum
from functools import partial
from typing import TypeVar

from postroom.adapters.http.response_head import ResponseHead
from postroom.agent.direct.direct_batch import DirectBatch, Publication, SuspendedAt
from postroom.agent.publish import Publisher
from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.authentication import authenticate, authentication_failure
from postroom.agent.streaming.documents import build_initial_context
from postroom.agent.streaming.interchange import Interchange
from postroom.correlation_tokens import add_token
from postroom.errors import KeyReused, MessageFailure, PostroomError, is_environment_error
from postroom.message import Body, Message
from postroom.messagebox.configuration.hosts import Host
from postroom.messagebox.connection import Connect, Connection, LazyConnection, transaction
from postroom.messagebox.coordination.notifications import OwnHost
from postroom.messagebox.storage.stored_responses import StoredResponse, StoredResponses
from postroom.messagebox.subscriptions import ServiceSubscriptions, SubscribingService
from postroom.ports.receive_locations import ReceiveLocation
from postroom.processes.background_loop import BackgroundLoop
from postroom.temporary_bodies import spool
from postroom.two_way.single_document import build_received, read_document
from postroom.two_way.waiting_requests import WaitingRequest, WaitingRequests

T = TypeVar("T")
#: While callers wait, the loop checks at least this often whether one has waited for too long.
_MAX_SECONDS, _IDLE_SECONDS = 1.0, 60.0
#: How often the loop looks for the responses of callers that wait at other host instances.
_FOLLOW_SECONDS = 0.2
#: How long after the timeout the response to a request with an idempotency key may come. It is stored for the repeated
#: request. If this host instance has ended, the response waits in the queue.
LATE_RESPONSE_SECONDS = 3600.0


class MissingResponse(Enum):
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
    head: ResponseHead = field(default_factory=ResponseHead)
    missing: MissingResponse | None = None


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

    def keep(self, caller: Caller) -> None:
        """Keep a caller with an idempotency key that was taken for a fault: its late response is stored for the
        repeated request."""
        with self._lock:
            self._keep(caller)

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
        self.end(lost, Answer(missing=MissingResponse.REFUSED))
        self._wake()

    def close(self) -> None:
        """Answer all callers: this process ends. The subscriptions of requests with an idempotency key stay until the
        time for late responses is over."""
        for caller in self.waiting:
            if caller.has_key and (taken := self.take(caller.instance_id)) is not None:
                taken.answer(Answer(missing=MissingResponse.STOPPING))
        self.end(self.waiting, Answer(missing=MissingResponse.STOPPING))
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
        return Answer(missing=MissingResponse.EXPIRED)

    def _build_lost(self) -> Answer:
        return Answer(missing=MissingResponse.LOST)

    def _read_stored(self, connection: Connection, response: StoredResponse) -> Answer:
        if response.content_type is None:
            return Answer(missing=MissingResponse.REFUSED)
        body = spool(self._stored.read_body(connection, response.unit))
        head = self._stored.read_head(connection, response.unit)
        return Answer(
            body=body, content_type=response.content_type, head=ResponseHead() if head is None else ResponseHead(**head)
        )

    def _follow_awaited(self, connection: Connection, request: Caller, response: StoredResponse) -> None:
        """Take over the request of a host instance that has ended. Stop following if no other one has taken it over."""
        with self._lock:
            caller = self._waiting.get(request.instance_id)
        if caller is None:
            return
        is_here = response.instance_id == caller.instance_id
        if response.is_orphaned:
            caller.token = response.token or caller.token  # before its response can come
            is_here = transaction(connection, lambda connection: self._take_over(connection, caller))
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


class RequestPublisher:
    """Publishes requests from many threads. The responses come to this host instance."""

    def __init__(
        self,
        *,
        host: Host,
        host_instance: int,
        callers: Callers,
        routing: RoutingTable,
        own_host: OwnHost | None = None,
    ) -> None:
        self.callers = callers
        self._host = host
        self._host_instance = host_instance
        self._routing = routing
        self._own_host = own_host

    def publish(
        self,
        connection: Connection,
        location: ReceiveLocation,
        interchange: Interchange,
        *,
        timeout: float,
        digest: bytes | None = None,
    ) -> Caller:
        """Publish a request. Return its caller, whose future gets the answer.

        A request whose idempotency key is in use joins the caller that waits, here or at another host instance, takes
        over from a host instance that has ended, or gets the stored response. Raise MessageFailure if the request
        fails, and KeyReused if its key came with another body."""
        now = time.monotonic()
        late = 0.0 if digest is None else LATE_RESPONSE_SECONDS
        caller = Caller(
            unit=interchange.interchange_id,
            location=location,
            deadline=now + timeout,
            kept_until=now + timeout + late,
            digest=digest,
        )
        # Before the publish: the response may come before its commit is confirmed.
        caller = self.callers.add(caller)
        if not self.callers.start_publish(caller):
            return caller
        try:
            is_repeated = self._publish(connection, interchange, caller)
        except BaseException as error:
            if digest is not None and is_environment_error(error):
                self.callers.publish_again(caller, error)
            else:
                # After a lost connection the request may have been published anyway.
                self.callers.end([caller], error)
            raise
        self.callers.confirm(caller, follows=is_repeated)
        return caller

    def _publish(self, connection: Connection, interchange: Interchange, caller: Caller) -> bool:
        """Run the receive pipeline, and publish the request. Return True if it was published before, under the same
        key. Raise its failure: then it does not wait for a response."""
        location = caller.location
        failures: dict[int, MessageFailure] = {}
        try:
            message = self._receive(connection, interchange, caller)
        except MessageFailure as failure:
            failures[0] = failure
            received = build_received(interchange, location.pipeline.content_type)
            message = received.with_context(build_initial_context(location, interchange))
        if message is None:
            raise authentication_failure(location)
        publication = Publication(
            messages=[message],
            unit=interchange.interchange_id,
            digest=caller.digest,
            failures=failures,
            precondition=self.callers.build_response_wait(
                caller,
                SubscribingService(service_id=location.location_id, name=location.port_name),
                for_host_instance=self._host_instance,
                kept_for=timedelta(seconds=caller.kept_until - time.monotonic()) if caller.has_key else None,
            ),
            awaited_by=caller.instance_id,
            suspended_at=SuspendedAt(
                service_id=location.location_id, adapter=location.adapter_kind, uri=location.uri, resumable=False
            ),
        )
        publisher = Publisher(connection, self._routing, own_host=self._own_host)
        batch = publisher.run(partial(DirectBatch, self._host, publication))
        if batch.suspended:
            raise batch.suspended[0]
        [published] = batch.published
        return published.repeated

    def _receive(self, connection: Connection, interchange: Interchange, caller: Caller) -> Message | None:
        """Return the request as it is published, or None if the receive port drops it. Raise MessageFailure."""
        location, check = caller.location, None
        if location.authentication != "none":
            check = partial(authenticate, location, login=self._routing.catch_up(connection).login)
        message = read_document(location.pipeline, location.maps, interchange, authenticate=check)
        if message is None:
            return None
        context = build_initial_context(location, interchange, message.context)
        return message.with_context(add_token(context, caller.token))
