"""Waits for the responses to the requests of a program.

    waiting = responses.add(future, timeout=30)
    responses.subscribe(connection, waiting)        # in the transaction that publishes the request
    response = future.result()

A response is routed to its request by an instance subscription, as at two-way ports (RR-02). All requests of a client
share one queue and one thread, which reads the queue while requests wait. A waiting request holds no connection and no
transaction. If the program ends, its queue expires, and responses that come later are suspended (RR-06).
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

from postroom.agent.two_way.tokens import correlation_failure, wait_for_response
from postroom.consumer import Received, Subscription
from postroom.errors import ClaimLost, MessageBoxUnavailable, MessageFailure, NoResponse, ResponseTimeout, StateError
from postroom.message import Bytes, Message
from postroom.messagebox.configuration.hosts import Host, ServiceClass
from postroom.messagebox.connection import Connect, Connection, transaction
from postroom.messagebox.queues import MAX_DESCRIPTION, ClaimedMessage, HostQueues, Suspension
from postroom.messagebox.subscriptions import ServiceSubscriptions
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


@dataclass(frozen=True, kw_only=True, eq=False)
class WaitingRequest:
    """A request that waits for its response, which is routed to the instance."""

    future: Future[Message]
    timeout: float
    deadline: float
    """When it stops waiting, by the monotonic clock."""
    instance_id: uuid.UUID = field(default_factory=uuid.uuid4)

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
        name = f"requests of {socket.gethostname()} {os.getpid()} {uuid.uuid4()}"
        self._queue = Subscription(
            connect, host, name, None, lease=_LEASE, prefetch=_PREFETCH, expire_after=_EXPIRE_AFTER
        )
        self._lock = threading.Lock()
        self._waiting: dict[uuid.UUID, WaitingRequest] = {}
        self._to_remove: deque[uuid.UUID] = deque()
        self._loop = BackgroundLoop("responses", self._step, backoff=_BACKOFF)
        self._loop.start()

    def add(self, future: Future[Message], timeout: float) -> WaitingRequest:
        """Register a request before it is published. Cancel its future to stop waiting."""
        waiting = WaitingRequest(future=future, timeout=timeout, deadline=time.monotonic() + timeout)
        with self._lock:
            self._waiting[waiting.instance_id] = waiting
        future.add_done_callback(lambda _: self.cancel(waiting))
        self._loop.wake()
        return waiting

    def subscribe(self, connection: Connection, waiting: WaitingRequest) -> None:
        """Create the instance subscription for the response, in the transaction that publishes the request."""
        self._queue.set_expiration(connection, _EXPIRE_AFTER)  # it may have expired while no request was waiting
        wait_for_response(connection, self._subscriptions, self._queue.service, waiting.instance_id)

    def confirm(self, waiting: WaitingRequest) -> None:
        """Remove the instance subscription of a request that stopped waiting before it was published."""
        with self._lock:
            is_waiting = waiting.instance_id in self._waiting
        if not is_waiting:
            self._forget(waiting.instance_id)

    def cancel(self, waiting: WaitingRequest) -> None:
        """Stop waiting, unless the request has ended. Return at once."""
        if self._take(waiting.instance_id) is not None:
            self._forget(waiting.instance_id)

    def close(self) -> None:
        """End all requests that wait, and remove the queue."""
        self._end(list(self._waiting), StateError("The client was closed while a request waited for its response."))
        self._loop.stop()
        self._loop.join(_CLOSE_SECONDS)
        with suppress(MessageBoxUnavailable):  # then the queue expires
            self._queue.call(lambda _, connection: self._remove_queue(connection))
        self._queue.close()

    def _take(self, instance_id: uuid.UUID) -> WaitingRequest | None:
        with self._lock:
            return self._waiting.pop(instance_id, None)

    def _put_back(self, waiting: WaitingRequest) -> None:
        with self._lock:
            self._waiting[waiting.instance_id] = waiting

    def _forget(self, instance_id: uuid.UUID) -> None:
        self._to_remove.append(instance_id)
        self._loop.wake()

    def _end(self, instances: Iterable[uuid.UUID], error: Exception) -> None:
        for instance_id in instances:
            waiting = self._take(instance_id)
            if waiting is not None:
                self._to_remove.append(instance_id)
                waiting.fail(error)

    def _step(self) -> float:
        """Receive a response. Without a waiting request, check once whether there is one that nobody waits for."""
        now = time.monotonic()
        with self._lock:
            waiting = list(self._waiting.values())
        for expired in (request for request in waiting if request.deadline <= now):
            self._end([expired.instance_id], _build_timeout(expired.timeout))
        if self._to_remove:
            self._queue.call(lambda _, connection: self._remove_instances(connection))
        deadlines = [request.deadline - now for request in waiting if request.deadline > now]
        received = self._queue.receive(min(_POLL_SECONDS, *deadlines) if deadlines else 0.0)
        if received is not None:
            self._deliver(received)
        return 0.0 if received is not None or deadlines else _IDLE_SECONDS

    def _remove_instances(self, connection: Connection) -> int:
        removed = 0
        while self._to_remove:
            instance_id = self._to_remove[0]
            transaction(connection, lambda it: self._subscriptions.complete(it, instance_id))  # noqa: B023
            self._to_remove.popleft()
            removed += 1
        return removed

    def _remove_queue(self, connection: Connection) -> int:
        removed = self._remove_instances(connection)
        self._queue.set_expiration(connection, timedelta(0))
        return removed

    def _deliver(self, received: Received) -> None:
        """Complete a response, and give it to its request after the commit. Suspend it if its request is gone."""
        waiting = self._take(received.instance_id)
        if waiting is None:
            received.suspend(_build_suspension(correlation_failure()))
            return
        try:
            response = _read_bodies(received.message)
            self._complete(received)
        except MessageFailure as failure:
            waiting.fail(failure)
            self._forget(waiting.instance_id)
            received.suspend(_build_suspension(failure))
        except BaseException:
            self._put_back(waiting)  # the response is received again when its lease has expired
            raise
        else:
            _answer(waiting, response)

    def _complete(self, received: Received) -> None:
        """Complete the response and its request in one transaction."""

        def complete(queues: HostQueues, connection: Connection, claimed: ClaimedMessage) -> int:
            def work(connection: Connection) -> int:
                completed = queues.complete(connection, claimed.claim_id, [claimed.seq])
                if completed:
                    self._subscriptions.complete(connection, claimed.instance_id)
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


def _build_timeout(seconds: float) -> ResponseTimeout:
    return ResponseTimeout(
        f"There was no response within {seconds:g} s.",
        why="The request was published. A response that comes later is suspended.",
        hint="Pass a longer timeout, or find the request in 'postroom instance list'.",
    )
