"""The client for asyncio: the methods of Client and Subscription as coroutines.

    async with await postroom.connect_async(home="orders-home") as client:
        await client.publish(b"...", promoted={"Orders.Region": "EU"})
        async with await client.subscribe("billing", "Orders.Region == 'EU'") as subscription:
            async for received in subscription:
                await received.complete()

The calls run in threads. A client publishes one batch at a time, and a subscription receives one message at a time.
Any number of requests may wait at once.
"""

from __future__ import annotations

import asyncio
import functools
import os
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack

from postroom.agent.direct.direct_batch import Published
from postroom.client.client import Client, connect
from postroom.client.content import Content, list_messages
from postroom.client.subscription import POLL_SECONDS, Received, Subscription, SubscriptionSettings
from postroom.errors import ClaimLost, MessageBoxUnavailable
from postroom.filters.expression import Filter
from postroom.lookups import Lookup
from postroom.message import Body, Message
from postroom.messagebox.throttling.pace import PUBLISH_WAIT

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


async def connect_async(
    database: str | None = None,
    *,
    home: str | os.PathLike[str] | None = None,
    host: str | None = None,
    throttle_wait: float = PUBLISH_WAIT,
) -> AsyncClient:
    """Connect to a MessageBox, as ``postroom.connect`` does."""
    connecting = functools.partial(connect, database, home=home, host=host, throttle_wait=throttle_wait)
    return AsyncClient(await asyncio.to_thread(connecting))


class _Wrapper(Generic[T]):
    """Calls the methods of an object in threads."""

    def __init__(self, wrapped: T) -> None:
        self._wrapped = wrapped


def _in_thread(
    method: Callable[Concatenate[T, P], R],
) -> Callable[Concatenate[_Wrapper[T], P], Coroutine[Any, Any, R]]:
    """Return a coroutine method that calls a method of the wrapped object in a thread."""

    @functools.wraps(method)
    async def call(self: _Wrapper[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        bound: Callable[P, R] = getattr(self._wrapped, method.__name__)
        return await asyncio.to_thread(bound, *args, **kwargs)

    return call


def _pause_or_publish(pauses: Iterator[float], publish: Callable[[], R]) -> tuple[float, list[R]]:
    """Return the seconds to wait, or the result of ``publish``."""
    for pause in pauses:
        return pause, []
    return 0.0, [publish()]


class AsyncReceived(_Wrapper[Received]):
    """A message that a subscription has received. End it with ``complete``, ``reply``, ``retry``, ``fail`` or
    ``release``."""

    def __init__(self, received: Received) -> None:
        super().__init__(received)
        self.message = received.message

    @property
    def attempt(self) -> int:
        """The number of this attempt, counted from 1."""
        return self._wrapped.attempt

    @property
    def instance_id(self) -> uuid.UUID:
        """The instance, as in ``postroom instance list``."""
        return self._wrapped.instance_id

    complete = _in_thread(Received.complete)
    reply = _in_thread(Received.reply)
    retry = _in_thread(Received.retry)
    fail = _in_thread(Received.fail)
    release = _in_thread(Received.release)
    extend = _in_thread(Received.extend)


class AsyncSubscription(_Wrapper[Subscription]):
    """A subscription of a program. Iterate over it to receive messages, or call ``receive``."""

    def __init__(self, subscription: Subscription) -> None:
        super().__init__(subscription)
        self.name = subscription.name
        # The call in a thread. A cancelled task leaves it to the next one, because it may have received a message.
        self._polling: asyncio.Task[Received | None] | None = None
        self._lock = asyncio.Lock()
        self._closing = asyncio.Event()

    async def receive(self, timeout: float | None = None) -> AsyncReceived | None:
        """Return the next message, or None after ``timeout`` seconds without one, or when the subscription is
        closed. Without a timeout it waits, also for a MessageBox that is unavailable."""
        loop = asyncio.get_running_loop()
        end = None if timeout is None else loop.time() + timeout
        failures = 0
        while not self._closing.is_set() and not self._wrapped.is_closed:
            remaining = POLL_SECONDS if end is None else min(POLL_SECONDS, end - loop.time())
            try:
                received = await self._poll(remaining)
                if received is not None:
                    return AsyncReceived(received)
                if remaining <= 0:
                    return None
                failures = 0
            except MessageBoxUnavailable as error:
                failures += 1
                delay = self._wrapped._log_failed_poll(error, failures)
                if end is not None and loop.time() + delay > end:
                    raise
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), delay)
        return None

    async def _poll(self, seconds: float) -> Received | None:
        async with self._lock:
            if self._polling is None:
                self._polling = asyncio.create_task(asyncio.to_thread(self._wrapped._poll, seconds))
            return await self._end_poll(self._polling)

    async def _end_poll(self, polling: asyncio.Task[Received | None]) -> Received | None:
        """Return the result of the call in a thread. The caller holds the lock."""
        await asyncio.wait([polling])
        self._polling = None
        return polling.result()

    @property
    def is_closed(self) -> bool:
        return self._wrapped.is_closed

    async def __aiter__(self) -> AsyncIterator[AsyncReceived]:
        while (received := await self.receive()) is not None:
            yield received

    async def close(self) -> None:
        """Stop receiving. The subscription stays."""
        self._closing.set()
        # A message that is not released is received again when its lease expires.
        async with self._lock:
            with suppress(MessageBoxUnavailable, ClaimLost):
                if self._polling is not None and (received := await self._end_poll(self._polling)) is not None:
                    await asyncio.to_thread(received.release)
        await asyncio.to_thread(self._wrapped.close)

    remove = _in_thread(Subscription.remove)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()


class AsyncLookup(_Wrapper[Lookup]):
    """A lookup. Read it with ``get``."""

    get = _in_thread(Lookup.get)


class AsyncClient(_Wrapper[Client]):
    """Publishes and subscribes for tasks of an event loop."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)

    directed_to = _in_thread(Client.directed_to)
    close = _in_thread(Client.close)

    def lookup(self, name: str) -> AsyncLookup:
        """Return the lookup with this name, as ``Client.lookup`` does."""
        return AsyncLookup(self._wrapped.lookup(name))

    async def publish(
        self,
        body: bytes | bytearray | memoryview | Body | Message | None = None,
        *,
        key: str | None = None,
        **content: Unpack[Content],
    ) -> Published:
        """Publish one message, as ``Client.publish`` does. It holds no thread while programs are throttled."""
        message = await asyncio.to_thread(self._wrapped._build_message, body, **content)
        [published] = await self.publish_many([message], key=key)
        return published

    async def publish_many(self, messages: Iterable[Message], *, key: str | None = None) -> list[Published]:
        """Publish all of these messages or none of them, as ``Client.publish_many`` does."""
        published = list_messages(messages)
        return await self._publish(published, functools.partial(self._wrapped._publish_now, published, key))

    async def _publish(self, messages: Sequence[Message], publish: Callable[[], R]) -> R:
        """Publish in a thread. Wait on the event loop while programs are throttled."""
        pauses = self._wrapped._find_pauses(messages)
        while True:
            pause, results = await asyncio.to_thread(_pause_or_publish, pauses, publish)
            for result in results:
                return result
            await asyncio.sleep(pause)

    async def request(
        self,
        body: bytes | bytearray | memoryview | Body | Message | None = None,
        *,
        key: str | None = None,
        timeout: float = 60.0,
        **content: Unpack[Content],
    ) -> Message:
        """Publish a request, and return its response, as ``Client.request`` does. It holds no thread while it waits."""
        response: Future[Message] = Future()
        try:
            return await (await self.start_request(body, key=key, timeout=timeout, response=response, **content))
        finally:
            response.cancel()  # the task may be cancelled before the request is published

    async def start_request(
        self,
        body: bytes | bytearray | memoryview | Body | Message | None = None,
        *,
        key: str | None = None,
        timeout: float = 60.0,
        response: Future[Message] | None = None,
        **content: Unpack[Content],
    ) -> asyncio.Future[Message]:
        """Publish a request, and return the future of its response without waiting. Cancel the future to stop
        waiting."""
        message = await asyncio.to_thread(self._wrapped._build_message, body, is_request=True, **content)
        publish = functools.partial(
            self._wrapped._publish_request, message, key=key, timeout=timeout, response=response
        )
        return asyncio.wrap_future(await self._publish([message], publish))

    async def subscribe(
        self, name: str, filter: Filter | str, **settings: Unpack[SubscriptionSettings]
    ) -> AsyncSubscription:
        """Create the durable subscription ``name``, or continue it, as ``Client.subscribe`` does."""
        return AsyncSubscription(await asyncio.to_thread(self._wrapped.subscribe, name, filter, **settings))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()
