"""Durable subscriptions of programs: receive messages in any Python program.

    with postroom.connect(home="orders-home") as client, client.subscribe("billing", Region == "EU") as subscription:
        for received in subscription:
            handle(received.message)
            received.complete()             # or received.reply(b"..."), if it is a request

The subscription stays when the program ends, and messages wait for it. Each message is received at least once: a
message that is neither completed nor failed is received again when its lease has expired.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Protocol, Self, TypedDict, TypeVar, Unpack

import psycopg

from postroom.agent.addressing import Addressees
from postroom.agent.direct.direct_batch import Published
from postroom.client.content import Content
from postroom.errors import BadValue, ClaimLost, MessageBoxUnavailable, StateError
from postroom.filters.expression import Filter
from postroom.message import Body, Context, Message
from postroom.messagebox.configuration.hosts import Host, ServiceClass
from postroom.messagebox.connection import Connect, Connection, LazyConnection, transaction
from postroom.messagebox.coordination.notifications import listen_on, wake_up_channel
from postroom.messagebox.queues import ClaimedMessage, HostQueues, ScheduledRetry, Suspension
from postroom.messagebox.storage.claimed_messages import build_message
from postroom.messagebox.subscriptions import ServiceSubscriptions, SubscribingService
from postroom.processes.backoff import Backoff
from postroom.system_properties import BTS

_log = logging.getLogger(__name__)

T = TypeVar("T")

#: How long a subscription waits for a wake-up before it looks into the queue. Wake-ups can be lost.
POLL_SECONDS = 0.5
_BACKOFF = Backoff(first=0.1, longest=5.0)
_MAX_PREFETCH = 1000
_MIN_LEASE = timedelta(seconds=1)
#: From the third attempt on a message is received alone, so fewer attempts could suspend others with it.
_MIN_ATTEMPTS, _MAX_ATTEMPTS = 3, 1000


@dataclass(kw_only=True)
class _Lease:
    """The lease of a claim. ``deadline`` is on the monotonic clock of this process, and no later than the server's."""

    claim_id: uuid.UUID
    length: timedelta
    deadline: float


class Reply(Protocol):
    """Publishes the response to a request, in the transaction in which ``complete`` is called."""

    def __call__(
        self,
        request: Context,
        complete: Callable[[Connection], None],
        body: bytes | bytearray | memoryview | Body | Message | None,
        **content: Unpack[Content],
    ) -> Published: ...


class Received:
    """A message that a subscription has received. End it with ``complete``, ``reply``, ``retry``, ``fail`` or
    ``release``."""

    def __init__(self, subscription: Subscription, claimed: ClaimedMessage, lease: _Lease, message: Message) -> None:
        self._subscription = subscription
        self._claimed = claimed
        self._lease = lease
        self.message = message
        """The message. A large body is read from the MessageBox while the lease is valid."""

    @property
    def attempt(self) -> int:
        """The number of this attempt, counted from 1. An attempt counts if it ended with ``retry``, or if the lease of
        the message expired before the program ended it."""
        return self._claimed.attempt + 1

    @property
    def instance_id(self) -> uuid.UUID:
        """The instance, as in ``postroom instance list``."""
        return self._claimed.instance_id

    def complete(self) -> None:
        """Remove the message from the queue. Raise ClaimLost if the lease has expired."""
        self._end(lambda queues, connection, claimed: queues.complete(connection, claimed.claim_id, [claimed.seq]))

    def reply(
        self, body: bytes | bytearray | memoryview | Body | Message | None = None, **content: Unpack[Content]
    ) -> Published:
        """Publish the response to a request and complete the request, in one transaction.

        ``content`` is described at Content. The response goes to the caller that waits. If the caller is gone, it is
        suspended, and so says the result. Raise StateError if the message is not a request, and ClaimLost if the lease
        has expired."""
        context = self.message.context
        if BTS.EpmRRCorrelationToken not in context or context.get(BTS.RouteDirectToTP) is True:
            raise StateError(
                f"Message {self._claimed.message_id} is not a request: nobody waits for a reply.",
                hint="End it with complete(), and publish further messages with client.publish().",
            )
        published = self._subscription._publish_reply(context, self._claimed, body, **content)
        self._subscription._forget(self._claimed)
        return published

    def retry(self, after: timedelta | float, reason: str = "") -> None:
        """Receive the message again after this time, in seconds or as a timedelta. Raise ClaimLost if the lease has
        expired."""
        delay = _to_timedelta("after", after)
        retry = ScheduledRetry(delay=delay, code="PROGRAM", description=reason or "The program asked for a retry.")
        self._end(lambda queues, connection, claimed: queues.retry(connection, claimed.claim_id, {claimed.seq: retry}))

    def fail(self, reason: str) -> None:
        """Suspend the message with a reason, until an operator resumes or terminates it. Raise ClaimLost if the lease
        has expired."""
        self._suspend(Suspension(code="PROGRAM", description=reason))

    def release(self) -> None:
        """Return the message to the queue: it is received again at once. Raise ClaimLost if the lease has expired."""
        self._end(lambda queues, connection, claimed: queues.release(connection, claimed.claim_id, [claimed.seq]))

    def extend(self, lease: timedelta | float | None = None) -> None:
        """Extend the lease, from now on: by default by its length. The messages that were fetched together share a
        lease. Raise ClaimLost if it has expired."""
        length = self._lease.length if lease is None else _to_timedelta("lease", lease)
        self._subscription._extend(self._lease, length)

    # -- for responses -----------------------------------------------------------------------------------------

    def _suspend(self, suspension: Suspension) -> None:
        """Suspend the message. Raise ClaimLost if the lease has expired."""
        self._end(
            lambda queues, connection, claimed: queues.suspend(connection, claimed.claim_id, {claimed.seq: suspension})
        )

    def _end(self, change_row: Callable[[HostQueues, Connection, ClaimedMessage], int]) -> None:
        """Call a procedure that ends the claim of one row. Raise ClaimLost if the lease has expired."""
        ended = self._subscription._call(lambda queues, connection: change_row(queues, connection, self._claimed))
        self._subscription._forget(self._claimed)
        if ended != 1:
            raise lease_expired(self._claimed.message_id)


class SubscriptionSettings(TypedDict, total=False):
    """Settings of a subscription of a program.

    Up to ``prefetch`` messages are claimed at a time, each time for ``lease``. A message that is not ended by then is
    received again. A message that this has happened to twice may have killed the programs that received it: it is
    received alone, and suspended after ``max_attempts`` times (None: never). If no program uses the subscription for
    ``expire_after``, it is removed and its messages are suspended. Times are in seconds, or timedeltas.
    """

    lease: timedelta | float
    prefetch: int
    expire_after: timedelta | float | None
    max_attempts: int | None


class Subscription:
    """A subscription of a program. Iterate over it to receive messages, or call ``receive``.

    Several programs, or several threads with a subscription each, may use the same name: each message goes to one of
    them. Messages may be completed in any thread.
    """

    def __init__(
        self,
        connect: Connect,
        host: Host,
        name: str,
        filter: Filter | None,
        reply: Reply | None = None,
        *,
        lease: timedelta | float = timedelta(seconds=30),
        prefetch: int = 20,
        expire_after: timedelta | float | None = timedelta(days=7),
        max_attempts: int | None = 5,
    ) -> None:
        lease = _to_timedelta("lease", lease)
        expire_after = None if expire_after is None else _to_timedelta("expire_after", expire_after)
        if not name.strip():
            raise BadValue("The name of a subscription is empty.", hint="Give each subscription a name of its own.")
        if not 1 <= prefetch <= _MAX_PREFETCH:
            raise BadValue(f"prefetch is {prefetch}, but must be from 1 to {_MAX_PREFETCH}.")
        if max_attempts is not None and not _MIN_ATTEMPTS <= max_attempts <= _MAX_ATTEMPTS:
            raise BadValue(
                f"max_attempts is {max_attempts}, but must be from {_MIN_ATTEMPTS} to {_MAX_ATTEMPTS}.",
                hint="Pass None to receive a message again and again.",
            )
        if lease < _MIN_LEASE:
            raise BadValue(f"A lease of {lease.total_seconds():g} s is too short.", hint="Give it at least a second.")
        self.name = name
        self._host = host
        self._reply = reply
        self._queues = HostQueues(host.name)
        self._lease = lease
        self._prefetch = prefetch
        self._max_attempts = max_attempts
        self._fetched: deque[tuple[ClaimedMessage, _Lease]] = deque()
        # The leases of messages that the program has received and not ended, by their numbers.
        self._received: dict[int, _Lease] = {}
        self._claiming = LazyConnection(lambda: self._listen(connect()))
        self._ending = LazyConnection(connect)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        try:
            self._service_id = transaction(
                self._claiming.get(), lambda connection: self._open(connection, filter, expire_after)
            )
        except BaseException:
            self._claiming.close()
            raise

    @property
    def _service(self) -> SubscribingService:
        """The service that messages are routed to."""
        return SubscribingService(service_id=self._service_id, name=self.name)

    def receive(self, timeout: float | None = None) -> Received | None:
        """Return the next message, or None after ``timeout`` seconds without one. Without a timeout it waits, also for
        a MessageBox that is unavailable."""
        end = None if timeout is None else time.monotonic() + timeout
        failures = 0
        while not self._closed.is_set():
            remaining = POLL_SECONDS if end is None else min(POLL_SECONDS, end - time.monotonic())
            try:
                received = self._poll(remaining)
                if received is not None or remaining <= 0:
                    return received
                failures = 0
            except MessageBoxUnavailable as error:
                failures += 1
                delay = self._log_failed_poll(error, failures)
                if end is not None and time.monotonic() + delay > end:
                    raise
                self._closed.wait(delay)
        return None

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    @property
    def _has_unfinished(self) -> bool:
        """True if the program has received a message that it has not ended, and whose lease is valid."""
        now = time.monotonic()
        return any(now < lease.deadline for lease in self._received.copy().values())

    def __iter__(self) -> Iterator[Received]:
        while (received := self.receive()) is not None:
            yield received

    def close(self) -> None:
        """Stop receiving. Messages that were fetched and not received return to the queue. The subscription stays."""
        if self._closed.is_set():
            return
        self._closed.set()
        with self._lock:
            try:
                for claimed, _ in self._fetched:
                    self._queues.release(self._ending.get_working(), claimed.claim_id, [claimed.seq])
            except MessageBoxUnavailable:
                _log.info("fetched messages of %s return to the queue when their lease expires", self.name)
            self._fetched.clear()
            self._ending.close()
        self._claiming.close()

    def remove(self) -> None:
        """Remove the subscription and close it, for all programs that use it: no more messages are routed to it.
        Messages that wait are suspended within some minutes, and after that those that other programs have received and
        do not end. If a program subscribes under the same name before, it receives them."""

        def work(connection: Connection) -> None:
            self._replace_filter(connection, self._service_id, None)
            self._set_expiration(connection, timedelta(0))

        with self._lock:
            transaction(self._ending.get_working(), work)
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # -- for receive -------------------------------------------------------------------------------------------

    def _poll(self, seconds: float) -> Received | None:
        """Return the next message, or wait up to this time until there may be one. Raise MessageBoxUnavailable."""
        received = self._take()
        if received is None and seconds > 0:
            self._wait(seconds)
        return received

    def _log_failed_poll(self, error: MessageBoxUnavailable, failures: int) -> float:
        """Log a failed poll. Return the time until the next one."""
        _log.warning("the subscription %s cannot receive: %s", self.name, error)
        return _BACKOFF.delay(failures)

    # -- for received messages ---------------------------------------------------------------------------------

    def _call(self, call: Callable[[HostQueues, Connection], T]) -> T:
        """Call a procedure on the connection that ends messages."""
        with self._lock:
            self._check_open()
            return call(self._queues, self._ending.get_working())

    def _publish_reply(
        self,
        request: Context,
        claimed: ClaimedMessage,
        body: bytes | bytearray | memoryview | Body | Message | None,
        **content: Unpack[Content],
    ) -> Published:
        """Publish the response to a received request, in the transaction that completes the request."""
        assert self._reply is not None, "a queue of responses has no requests"
        self._check_open()

        def complete(connection: Connection) -> None:
            if self._queues.complete(connection, claimed.claim_id, [claimed.seq]) != 1:
                raise lease_expired(claimed.message_id)

        return self._reply(request, complete, body, **content)

    def _forget(self, claimed: ClaimedMessage) -> None:
        """Note that the program has ended a message."""
        self._received.pop(claimed.seq, None)

    def _extend(self, lease: _Lease, length: timedelta) -> None:
        """Extend the lease of a claim."""
        started = time.monotonic()
        extended = self._call(lambda queues, connection: queues.extend_lease(connection, lease.claim_id, length))
        if not extended:
            raise lease_expired(None)
        lease.deadline = started + length.total_seconds()

    def _read_claimed(self, query: Callable[[HostQueues, Connection], T]) -> T:
        """Read a received message, also while the subscription is being closed."""
        with self._lock:
            return query(self._queues, self._ending.get_working())

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise StateError("The subscription is closed.", hint="End messages before you close it.")

    # -- claiming ----------------------------------------------------------------------------------------------

    def _set_expiration(self, connection: Connection, expire_after: timedelta | None) -> uuid.UUID:
        """Create the queue of the subscription if it does not exist, and note that it is used now."""
        return self._queues.open_program_subscription(connection, self.name, expire_after, self._max_attempts)

    def _open(self, connection: Connection, filter: Filter | None, expire_after: timedelta | None) -> uuid.UUID:
        """Create the subscription, or replace it if its filter has changed. Without a filter only instance
        subscriptions route messages to it."""
        if filter is not None and self.name in Addressees.read(connection):
            raise StateError(
                f"There is a send port or a send port group {self.name!r}.",
                why="The name of a subscription shows who receives a message, so it cannot be theirs.",
                hint="Give the subscription another name.",
            )
        service_id = self._set_expiration(connection, expire_after)
        if filter is not None:
            self._replace_filter(connection, service_id, filter)
        return service_id

    def _replace_filter(self, connection: Connection, service_id: uuid.UUID, filter: Filter | None) -> None:
        service = SubscribingService(service_id=service_id, name=self.name)
        ServiceSubscriptions(self._host, ServiceClass.PROGRAMS).replace(connection, service, filter)

    def _listen(self, connection: Connection) -> Connection:
        listen_on(connection, wake_up_channel(self._host.name))
        return connection

    def _take(self) -> Received | None:
        """Return a fetched message whose lease is valid, or fetch more. None if nothing waits."""
        if not self._fetched:
            started = time.monotonic()
            claim_id = uuid.uuid4()
            claimed = self._queues.claim_for_program(
                self._claiming.get(), self._service_id, claim_id=claim_id, limit=self._prefetch, lease=self._lease
            )
            lease = _Lease(claim_id=claim_id, length=self._lease, deadline=started + self._lease.total_seconds())
            self._fetched.extend((message, lease) for message in claimed)
            for seq, other in list(self._received.items()):
                if other.deadline <= started:  # it was never ended
                    self._received.pop(seq, None)
        while self._fetched:
            message, lease = self._fetched.popleft()
            if time.monotonic() < lease.deadline:
                self._received[message.seq] = lease
                return Received(self, message, lease, build_message(message, _Reader(self)))
        return None

    def _wait(self, seconds: float) -> None:
        """Wait for a wake-up of the host."""
        try:
            for _ in self._claiming.get().notifies(timeout=seconds, stop_after=1):
                pass
        except psycopg.Error as error:
            raise MessageBoxUnavailable("The connection was lost.", why=str(error)) from error


@dataclass(frozen=True)
class _Reader:
    """Reads the large bodies of received messages."""

    subscription: Subscription

    def read_claimed(self, query: Callable[[HostQueues, Connection], T]) -> T:
        return self.subscription._read_claimed(query)


def _to_timedelta(name: str, given: timedelta | float) -> timedelta:
    """Return a time that is given in seconds or as a timedelta. Raise BadValue for anything else."""
    if isinstance(given, timedelta):
        return given
    try:
        if not isinstance(given, bool | str):
            return timedelta(seconds=given)
    except (TypeError, ValueError, OverflowError):
        pass
    raise BadValue(f"{name} is {given!r}, but must be a number of seconds or a timedelta.")


def lease_expired(message_id: uuid.UUID | None) -> ClaimLost:
    what = "The lease" if message_id is None else f"The lease of message {message_id}"
    return ClaimLost(
        f"{what} has expired.",
        why="The message is in the queue again, or another program has received it.",
        hint="Call extend() during long work, or pass a longer lease to subscribe().",
    )
