"""Waits for the responses to the requests of a program.

    request = requests.start(message, future, timeout=30)
    requests.build_publication(message, request)            # publishes it, and subscribes to its response
    response = future.result()

A response is routed to its request by an instance subscription, as at two-way ports (RR-02). All requests of a client
share one queue and one thread, which reads the queue while requests wait. If the program ends, its queue expires, and
responses that come later are suspended (RR-06).

A request with an idempotency key is published once. The program that repeats it takes over the wait. The response is
stored when it comes, so that the first program gets it, too, and a later repeat. If the program that repeats it stops
waiting, the first one waits again.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TypeVar

from postroom.agent.direct.direct_batch import Publication
from postroom.agent.idempotency import digest_request
from postroom.client.encoded_message import MESSAGE_TYPE, decode_message, encode_message
from postroom.client.subscription import Received, Subscription
from postroom.correlation_tokens import add_token
from postroom.errors import (
    ClaimLost,
    CorrelationFailure,
    MessageBoxUnavailable,
    MessageFailure,
    NoResponse,
    ResponseTimeout,
    StateError,
)
from postroom.message import Bytes, Message
from postroom.messagebox.configuration.hosts import Host, ServiceClass
from postroom.messagebox.connection import Connect, Connection, transaction
from postroom.messagebox.queues import MAX_DESCRIPTION, ClaimedMessage, HostQueues, Suspension
from postroom.messagebox.storage.stored_responses import StoredResponse, StoredResponses
from postroom.messagebox.subscriptions import ServiceSubscriptions
from postroom.processes.background_loop import BackgroundLoop
from postroom.processes.backoff import Backoff
from postroom.system_properties import BTS
from postroom.temporary_bodies import spool
from postroom.two_way.waiting_requests import WaitingRequest, WaitingRequests

T = TypeVar("T")
#: How long a call waits for a response before it looks for requests whose time is over.
_POLL_SECONDS, _IDLE_SECONDS = 0.5, 60.0
_BACKOFF = Backoff(first=0.1, longest=1.0)
#: The use of a queue is recorded once a minute, so a queue expires after some minutes at the earliest.
_EXPIRE_AFTER = timedelta(minutes=5)
_LEASE = timedelta(seconds=30)
_PREFETCH = 100
_CLOSE_SECONDS = 10.0


@dataclass(kw_only=True, eq=False)
class ProgramRequest(WaitingRequest[Message]):
    """A request of a program."""

    timeout: float


class ProgramRequests(WaitingRequests[ProgramRequest, Message]):
    """The requests of one client, which wait for their responses."""

    def __init__(self, connect: Connect, host: Host) -> None:
        self._loop = BackgroundLoop("responses", self._step, backoff=_BACKOFF)
        super().__init__(
            stored=StoredResponses(host.name),
            subscriptions=ServiceSubscriptions(host, ServiceClass.PROGRAMS),
            wake=self._loop.wake,
        )
        name = f"requests of {socket.gethostname()} {os.getpid()} {uuid.uuid4()}"
        self._queue = Subscription(
            connect,
            host,
            name,
            None,
            lease=_LEASE,
            prefetch=_PREFETCH,
            expire_after=_EXPIRE_AFTER,
            max_attempts=None,
        )
        self._loop.start()

    def start(
        self, message: Message, future: Future[Message], *, timeout: float, unit: uuid.UUID | None = None
    ) -> ProgramRequest:
        """Let a request wait before it is published. ``unit`` is that of its idempotency key. Cancel its future to stop
        waiting."""
        request = ProgramRequest(
            unit=unit or uuid.uuid4(),
            digest=None if unit is None else digest_request(message),
            future=future,
            timeout=timeout,
            deadline=time.monotonic() + timeout,
        )
        self.add(request)
        future.add_done_callback(lambda _: self.stop_waiting(request))
        return request

    def use_queue(self, connection: Connection) -> None:
        """Create the queue again if it has expired. It expires after all requests with an idempotency key."""
        repeatable = [request.timeout for request in self.waiting if request.has_key]
        self._queue._set_expiration(connection, max(_EXPIRE_AFTER, timedelta(seconds=max(repeatable, default=0.0))))

    def build_publication(self, message: Message, request: ProgramRequest) -> Publication:
        """Return the publication of a request with its token, which subscribes to the response. Call ``use_queue``
        before it is published."""
        return Publication(
            messages=[replace(message, context=add_token(message.context, request.token))],
            unit=request.unit,
            digest=request.digest,
            precondition=self.build_response_wait(request, self._queue._service),
            awaited_by=request.instance_id,
        )

    def take_over(self, request: ProgramRequest) -> None:
        """Wait for the response to the first request with the same key."""

        def work(connection: Connection) -> None:
            self.use_queue(connection)
            for response in self._stored.find(connection, [request.unit]):
                request.token = response.token or request.token  # before its response can come
            self._stored.take_over_program(
                connection,
                request.unit,
                instance_id=request.instance_id,
                queue_id=self._queue._service.service_id,
                queue_name=self._queue.name,
            )

        self._call(lambda connection: transaction(connection, work))

    def close(self) -> None:
        """End all requests that wait, and remove the queue, unless a request with an idempotency key waits: it can be
        repeated until the queue expires."""
        with self._lock:
            is_kept = bool(self._following)
        self.end(self.waiting, StateError("The client was closed while a request waited for its response."))
        self._loop.stop()
        self._loop.join(_CLOSE_SECONDS)
        with suppress(MessageBoxUnavailable):  # then the queue expires
            if is_kept:
                for request in self._to_remove:
                    self._call(partial(transaction, work=partial(self._leave, request=request)))
            else:
                self._remove_ended()
                self._call(lambda connection: self._queue._set_expiration(connection, timedelta(0)))
        self._queue.close()

    def _step(self) -> float:
        """Receive a response. Without a waiting request, check once whether there is one that nobody waits for."""
        seconds = self.check()
        received = self._queue.receive(0.0 if seconds is None else min(_POLL_SECONDS, seconds))
        if received is not None:
            self._deliver(received)
        return _IDLE_SECONDS if received is None and seconds is None else 0.0

    def _call(self, work: Callable[[Connection], T]) -> T:
        return self._queue._call(lambda _, connection: work(connection))

    def _build_timeout(self, request: ProgramRequest) -> ResponseTimeout:
        return ResponseTimeout(
            f"There was no response within {request.timeout:g} s.",
            why="The request was published. A response that comes later is suspended.",
            hint="Pass a longer timeout, or find the request in 'postroom instance list'.",
        )

    def _build_lost(self) -> NoResponse:
        return NoResponse(
            "A request with this key was published before, and its response is not available.",
            why="The first request has waited too long, or was cancelled.",
            hint="See 'postroom instance list', and use a new key for a new request.",
        )

    def _read_stored(self, connection: Connection, response: StoredResponse) -> Message | NoResponse:
        return _build_answer(decode_message(self._stored.read_body(connection, response.unit)))

    def _remove(self, connection: Connection, request: ProgramRequest) -> None:
        def work(connection: Connection) -> None:
            self._leave(connection, request)
            self._subscriptions.complete(connection, request.instance_id)

        transaction(connection, work)

    def _leave(self, connection: Connection, request: ProgramRequest) -> None:
        """Hand a request that was taken over back to the program that still waits."""
        if request.has_key:
            self._stored.leave(connection, request.unit, instance_id=request.instance_id)

    def _deliver(self, received: Received) -> None:
        """Complete a response, and give it to its request after the commit. Suspend it if its request is gone."""
        request = self.take_answered(received.instance_id, received.message.context.get(BTS.EpmRRCorrelationToken))
        if request is None:
            # Its request may have stopped waiting just now. Then the program that it was taken over from gets it.
            self._remove_ended()
            with suppress(ClaimLost):
                received._suspend(_build_suspension(CorrelationFailure()))
            return
        try:
            response = _read_bodies(received.message)
            self._complete(received, request, response)
        except MessageFailure as failure:
            request.answer(failure)
            self.forget(request)
            received._suspend(_build_suspension(failure))
        except BaseException:
            self.put_back(request)  # the response is received again when its lease has expired
            raise
        else:
            request.answer(_build_answer(response))

    def _complete(self, received: Received, request: ProgramRequest, response: Message) -> None:
        """Complete the response and its request in one transaction, and store the response to a request with a key."""

        def complete(queues: HostQueues, connection: Connection, claimed: ClaimedMessage) -> int:
            def work(connection: Connection) -> int:
                completed = queues.complete(connection, claimed.claim_id, [claimed.seq])
                if completed:
                    self._subscriptions.complete(connection, claimed.instance_id)
                    if request.has_key:
                        self._stored.store(connection, request.unit, MESSAGE_TYPE, encode_message(response))
                return completed

            return transaction(connection, work)

        try:
            received._end(complete)
        except MessageBoxUnavailable:
            # The transaction may have been committed. The repeat finds nothing then, and nobody else receives it.
            with suppress(ClaimLost):
                received._end(complete)


def _build_answer(response: Message) -> Message | NoResponse:
    if response.context.get(BTS.AckType) != "NACK":
        return response
    why = response.context.get(BTS.AckDescription, "")
    return NoResponse("The request could not be answered.", why=why, hint="See 'postroom instance list'.")


def _build_suspension(failure: MessageFailure) -> Suspension:
    return Suspension(code=failure.code, description=str(failure)[:MAX_DESCRIPTION], resumable=False)


def _read_bodies(message: Message) -> Message:
    """Return the message with its bodies in memory or in temporary files: the MessageBox deletes them."""
    if all(isinstance(part.body, Bytes) for part in message.parts):
        return message
    return replace(message, parts=tuple(replace(part, body=spool(part.body.chunks())) for part in message.parts))
