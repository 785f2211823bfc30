"""Waits for the responses to the requests of a program.

    waiting = responses.add(message, future, timeout=30)
    responses.build_batch(host, request, matcher, ...)      # publishes the request, and subscribes to its response
    response = future.result()

A response is routed to its request by an instance subscription, as at two-way ports (RR-02). All requests of a client
share one queue and one thread, which reads the queue while requests wait. A waiting request holds no connection and no
transaction. If the program ends, its queue expires, and responses that come later are suspended (RR-06).

A request with an idempotency key is published once. The program that repeats it takes over the wait. The response is
stored when it comes, so that the first program gets it, too, and a later repeat. If the program that repeats it stops
waiting, the first one waits again.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta

from postroom.agent.direct.answers import correlation_failure
from postroom.agent.idempotency import digest_request
from postroom.agent.routing.matching import Matcher
from postroom.agent.two_way.awaited_batch import AwaitedBatch
from postroom.agent.two_way.tokens import build_response_wait, create_token
from postroom.client.subscription import Received, Subscription
from postroom.errors import ClaimLost, MessageBoxUnavailable, MessageFailure, NoResponse, ResponseTimeout, StateError
from postroom.message import Bytes, Message
from postroom.messagebox.configuration.hosts import Host, ServiceClass
from postroom.messagebox.connection import Connect, Connection, transaction
from postroom.messagebox.queues import MAX_DESCRIPTION, ClaimedMessage, HostQueues, Suspension
from postroom.messagebox.storage.stored_responses import StoredResponses
from postroom.messagebox.subscriptions import ServiceSubscriptions
from postroom.pipelines.documents.encoded_message import MESSAGE_TYPE, decode_message, encode_message
from postroom.pipelines.documents.temporary_bodies import spool
from postroom.processes.background_loop import BackgroundLoop
from postroom.processes.backoff import Backoff
from postroom.system_properties import BTS

#: How long a call waits for a response before it looks for requests whose time is over.
_POLL_SECONDS, _IDLE_SECONDS = 0.5, 60.0
_BACKOFF = Backoff(first=0.1, longest=1.0)
#: The use of a queue is recorded once a minute, so a queue expires after some minutes at the earliest.
_EXPIRE_AFTER = timedelta(minutes=5)
_LEASE = timedelta(seconds=30)
_PREFETCH = 100
_CLOSE_SECONDS = 10.0


@dataclass(kw_only=True, eq=False)
class WaitingRequest:
    """A request that waits for its response, which is routed to the instance by the token."""

    future: Future[Message]
    timeout: float
    deadline: float
    """When it stops waiting, by the monotonic clock."""
    unit: uuid.UUID | None = None
    """Of a request with an idempotency key. Its response is stored."""
    digest: bytes | None = None
    """Of a request with an idempotency key: what the same key must come with again."""
    instance_id: uuid.UUID = field(default_factory=uuid.uuid4)
    token: str = field(default_factory=create_token)
    """That of the first request with the same key, once this one has taken it over."""

    def fail(self, error: Exception) -> None:
        """End a request with an error, unless it was cancelled."""
        with suppress(InvalidStateError):
            self.future.set_exception(error)


class Responses:
    """The responses of one client. Thread-safe. Each request ends once: by its response, its time, or its cancellation.

    After a timeout or a cancellation the instance subscription is removed, so that a late response is suspended (RR-05,
    RR-09).
    """

    def __init__(self, connect: Connect, host: Host) -> None:
        self._subscriptions = ServiceSubscriptions(host, ServiceClass.PROGRAMS)
        self._stored = StoredResponses(host.name)
        name = f"requests of {socket.gethostname()} {os.getpid()} {uuid.uuid4()}"
        self._queue = Subscription(
            connect, host, name, None, lease=_LEASE, prefetch=_PREFETCH, expire_after=_EXPIRE_AFTER
        )
        self._lock = threading.Lock()
        self._waiting: dict[uuid.UUID, WaitingRequest] = {}
        #: Published requests with an idempotency key: their responses may come to another program.
        self._following: set[WaitingRequest] = set()
        self._to_remove: deque[WaitingRequest] = deque()
        self._loop = BackgroundLoop("responses", self._step, backoff=_BACKOFF)
        self._loop.start()

    def add(
        self, message: Message, future: Future[Message], *, timeout: float, unit: uuid.UUID | None = None
    ) -> WaitingRequest:
        """Register a request before it is published. ``unit`` is that of its idempotency key. Cancel its future to stop
        waiting."""
        waiting = WaitingRequest(
            future=future,
            timeout=timeout,
            deadline=time.monotonic() + timeout,
            unit=unit,
            digest=None if unit is None else digest_request(message),
        )
        with self._lock:
            self._waiting[waiting.instance_id] = waiting
        future.add_done_callback(lambda _: self.cancel(waiting))
        self._loop.wake()
        return waiting

    def use_queue(self, connection: Connection) -> None:
        """Create the queue again if it has expired. It expires after all requests with an idempotency key."""
        with self._lock:
            repeatable = [request.timeout for request in self._waiting.values() if request.unit is not None]
        self._queue.set_expiration(connection, max(_EXPIRE_AFTER, timedelta(seconds=max(repeatable, default=0.0))))

    def build_batch(self, host: Host, message: Message, matcher: Matcher, *, waiting: WaitingRequest) -> AwaitedBatch:
        """Return the batch that publishes a request with its token, and subscribes to the response. Call ``use_queue``
        before it is published."""
        return AwaitedBatch(
            host,
            message,
            matcher,
            unit=waiting.unit or uuid.uuid4(),
            digest=waiting.digest,
            instance_id=waiting.instance_id,
            response_wait=build_response_wait(
                self._subscriptions, self._queue.service, waiting.instance_id, waiting.token
            ),
        )

    def confirm(self, waiting: WaitingRequest, *, is_repeated: bool) -> None:
        """Wait for the response to a request that was published, or to the first request with the same key. Remove the
        instance subscription if the request stopped waiting before."""
        if is_repeated:
            self._queue.call(lambda _, connection: transaction(connection, lambda it: self._take_over(it, waiting)))
        with self._lock:
            is_waiting = waiting.instance_id in self._waiting
            if is_waiting and waiting.unit is not None:
                self._following.add(waiting)
        if not is_waiting:
            self._forget(waiting)

    def cancel(self, waiting: WaitingRequest) -> None:
        """Stop waiting, unless the request has ended. Return at once."""
        if self._stop_waiting(waiting.instance_id) is not None:
            self._loop.wake()

    def close(self) -> None:
        """End all requests that wait, and remove the queue, unless a request with an idempotency key waits: it can be
        repeated until the queue expires."""
        with self._lock:
            is_kept = bool(self._following)
        self._end(list(self._waiting), StateError("The client was closed while a request waited for its response."))
        self._loop.stop()
        self._loop.join(_CLOSE_SECONDS)
        with suppress(MessageBoxUnavailable):  # then the queue expires
            self._queue.call(lambda _, connection: self._remove_queue(connection, is_kept=is_kept))
        self._queue.close()

    def _take(self, instance_id: uuid.UUID, token: str | None) -> WaitingRequest | None:
        """Remove and return the request that a message answers. Another host can queue any message for the instance,
        but does not know its token."""
        with self._lock:
            waiting = self._waiting.get(instance_id)
            if waiting is None or waiting.token != token:
                return None
            del self._waiting[instance_id]
            self._following.discard(waiting)
            return waiting

    def _stop_waiting(self, instance_id: uuid.UUID) -> WaitingRequest | None:
        """Remove a request that waits without a response. Its instance is removed by the loop."""
        with self._lock:
            waiting = self._waiting.pop(instance_id, None)
            if waiting is not None:
                self._following.discard(waiting)
                self._to_remove.append(waiting)
            return waiting

    def _put_back(self, waiting: WaitingRequest) -> None:
        with self._lock:
            self._waiting[waiting.instance_id] = waiting
            if waiting.unit is not None:
                self._following.add(waiting)

    def _forget(self, waiting: WaitingRequest) -> None:
        self._to_remove.append(waiting)
        self._loop.wake()

    def _end(self, instances: Iterable[uuid.UUID], error: Exception) -> None:
        for instance_id in instances:
            waiting = self._stop_waiting(instance_id)
            if waiting is not None:
                waiting.fail(error)

    def _step(self) -> float:
        """Receive a response. Without a waiting request, check once whether there is one that nobody waits for."""
        now = time.monotonic()
        with self._lock:
            waiting = list(self._waiting.values())
        for expired in (request for request in waiting if request.deadline <= now):
            self._end([expired.instance_id], _build_timeout(expired.timeout))
        if self._following:
            self._queue.call(lambda _, connection: self._answer_followers(connection))
        if self._to_remove:
            self._queue.call(lambda _, connection: self._remove_instances(connection))
        deadlines = [request.deadline - now for request in waiting if request.deadline > now]
        received = self._queue.receive(min(_POLL_SECONDS, *deadlines) if deadlines else 0.0)
        if received is not None:
            self._deliver(received)
        return 0.0 if received is not None or deadlines else _IDLE_SECONDS

    def _take_over(self, connection: Connection, waiting: WaitingRequest) -> int:
        assert waiting.unit is not None
        self.use_queue(connection)
        for response in self._stored.find(connection, [waiting.unit]):
            waiting.token = response.token or waiting.token  # before its response can come
        return self._stored.take_over_program(
            connection,
            waiting.unit,
            instance_id=waiting.instance_id,
            queue_id=self._queue.service.service_id,
            queue_name=self._queue.name,
        )

    def _answer_followers(self, connection: Connection) -> int:
        """Answer the requests whose response another program has stored, or that wait no longer."""
        with self._lock:
            following = sorted(self._following, key=lambda request: request.deadline)
        ended = 0
        for response in self._stored.find(connection, {request.unit for request in following if request.unit}):
            if response.is_awaited and not response.is_stored:
                continue
            for waiting in [request for request in following if request.unit == response.unit]:
                stored = self._stored.read_body(connection, response.unit) if response.is_stored else None
                answer = None if stored is None else decode_message(stored)
                if self._stop_waiting(waiting.instance_id) is not None:
                    _answer(waiting, answer) if answer is not None else waiting.fail(_build_lost())
                    ended += 1
        return ended

    def _remove_instances(self, connection: Connection) -> int:
        removed = 0
        while self._to_remove:
            waiting = self._to_remove[0]
            transaction(connection, lambda it: self._remove_instance(it, waiting))  # noqa: B023
            self._to_remove.popleft()
            removed += 1
        return removed

    def _remove_instance(self, connection: Connection, waiting: WaitingRequest) -> None:
        self._leave(connection, waiting)
        self._subscriptions.complete(connection, waiting.instance_id)

    def _leave(self, connection: Connection, waiting: WaitingRequest) -> None:
        if waiting.unit is not None:
            self._stored.leave(connection, waiting.unit, instance_id=waiting.instance_id)

    def _remove_queue(self, connection: Connection, *, is_kept: bool) -> int:
        """Remove the queue, or only hand over the requests that were taken over from programs that still wait."""
        if is_kept:
            for waiting in self._to_remove:
                transaction(connection, lambda it: self._leave(it, waiting))  # noqa: B023
            return 0
        removed = self._remove_instances(connection)
        self._queue.set_expiration(connection, timedelta(0))
        return removed

    def _deliver(self, received: Received) -> None:
        """Complete a response, and give it to its request after the commit. Suspend it if its request is gone."""
        waiting = self._take(received.instance_id, received.message.context.get(BTS.EpmRRCorrelationToken))
        if waiting is None:
            # Its request may have stopped waiting just now. Then the program that it was taken over from gets it.
            self._queue.call(lambda _, connection: self._remove_instances(connection))
            with suppress(ClaimLost):
                received.suspend(_build_suspension(correlation_failure()))
            return
        try:
            response = _read_bodies(received.message)
            self._complete(received, waiting, response)
        except MessageFailure as failure:
            waiting.fail(failure)
            self._forget(waiting)
            received.suspend(_build_suspension(failure))
        except BaseException:
            self._put_back(waiting)  # the response is received again when its lease has expired
            raise
        else:
            _answer(waiting, response)

    def _complete(self, received: Received, waiting: WaitingRequest, response: Message) -> None:
        """Complete the response and its request in one transaction, and store the response to a request with a key."""

        def complete(queues: HostQueues, connection: Connection, claimed: ClaimedMessage) -> int:
            def work(connection: Connection) -> int:
                completed = queues.complete(connection, claimed.claim_id, [claimed.seq])
                if completed:
                    self._subscriptions.complete(connection, claimed.instance_id)
                    if waiting.unit is not None:
                        self._stored.store(connection, waiting.unit, MESSAGE_TYPE, encode_message(response))
                return completed

            return transaction(connection, work)

        try:
            received.end(complete)
        except MessageBoxUnavailable:
            # The transaction may have been committed. The repeat finds nothing then, and nobody else receives it.
            with suppress(ClaimLost):
                received.end(complete)


def _answer(waiting: WaitingRequest, response: Message) -> None:
    if response.context.get(BTS.AckType) == "NACK":
        why = response.context.get(BTS.AckDescription, "")
        waiting.fail(NoResponse("The request could not be answered.", why=why, hint="See 'postroom instance list'."))
        return
    with suppress(InvalidStateError):
        waiting.future.set_result(response)


def _build_suspension(failure: MessageFailure) -> Suspension:
    return Suspension(code=failure.code, description=str(failure)[:MAX_DESCRIPTION], resumable=False)


def _read_bodies(message: Message) -> Message:
    """Return the message with its bodies in memory or in temporary files: the MessageBox deletes them."""
    if all(isinstance(part.body, Bytes) for part in message.parts):
        return message
    return replace(message, parts=tuple(replace(part, body=spool(part.body.chunks())) for part in message.parts))


def _build_lost() -> NoResponse:
    return NoResponse(
        "A request with this key was published before, and its response is not available.",
        why="The first request has waited too long, or was cancelled.",
        hint="See 'postroom instance list', and use a new key for a new request.",
    )


def _build_timeout(seconds: float) -> ResponseTimeout:
    return ResponseTimeout(
        f"There was no response within {seconds:g} s.",
        why="The request was published. A response that comes later is suspended.",
        hint="Pass a longer timeout, or find the request in 'postroom instance list'.",
    )
