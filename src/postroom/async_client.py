"""The client for asyncio: the methods of Client and Subscription as coroutines.

    async with await postroom.connect_async(home="orders-home") as client:
        await client.publish(b"...", promoted={"Orders.Region": "EU"})
        async with await client.subscribe("billing", "Orders.Region == 'EU'") as subscription:
            async for received in subscription:
                await received.complete()

The calls run in threads. A client publishes one batch at a time, and a subscription receives one message at a time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

from postroom.agent.direct.direct_batch import Published
from postroom.client import Client, Values, connect
from postroom.consumer import Received, Subscription
from postroom.filters.expression import Filter
from postroom.message import Body, Context, Message, Part

#: How long one call in a thread waits for a message.
_RECEIVE_SECONDS = 0.5


async def connect_async(
    database: str | None = None, *, home: str | os.PathLike[str] | None = None, host: str | None = None
) -> AsyncClient:
    """Connect to a MessageBox, as ``postroom.connect`` does."""
    return AsyncClient(await asyncio.to_thread(connect, database, home=home, host=host))


class AsyncReceived:
    """A message that a subscription has received. End it with ``complete``, ``retry``, ``fail`` or ``release``."""

    def __init__(self, received: Received) -> None:
        self._received = received
        self.message = received.message
        self.attempt = received.attempt
        self.instance_id = received.instance_id

    async def complete(self) -> None:
        """Remove the message from the queue. Raise ClaimLost if the lease has expired."""
        await asyncio.to_thread(self._received.complete)

    async def retry(self, after: timedelta, reason: str = "") -> None:
        """Receive the message again after this time. Raise ClaimLost if the lease has expired."""
        await asyncio.to_thread(self._received.retry, after, reason)

    async def fail(self, reason: str) -> None:
        """Suspend the message with a reason, until an operator resumes or terminates it."""
        await asyncio.to_thread(self._received.fail, reason)

    async def release(self) -> None:
        """Return the message to the queue: it is received again at once."""
        await asyncio.to_thread(self._received.release)

    async def extend(self, lease: timedelta | None = None) -> None:
        """Extend the lease, from now on: by default by its length. Raise ClaimLost if it has expired."""
        await asyncio.to_thread(self._received.extend, lease)


class AsyncSubscription:
    """A subscription of a program. Iterate over it to receive messages, or call ``receive``."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self.name = subscription.name
        # The call in a thread. A cancelled task leaves it to the next one, because it may have received a message.
        self._receiving: asyncio.Future[Received | None] | None = None
        self._lock = asyncio.Lock()

    async def receive(self, timeout: float | None = None) -> AsyncReceived | None:
        """Return the next message, or None after ``timeout`` seconds without one, or when the subscription is
        closed."""
        loop = asyncio.get_running_loop()
        end = None if timeout is None else loop.time() + timeout
        while not self._subscription.is_closed:
            remaining = _RECEIVE_SECONDS if end is None else min(_RECEIVE_SECONDS, end - loop.time())
            async with self._lock:
                if self._receiving is None:
                    call = asyncio.to_thread(self._subscription.receive, max(0.0, remaining))
                    self._receiving = asyncio.ensure_future(call)
                received = await asyncio.shield(self._receiving)
                self._receiving = None
            if received is not None:
                return AsyncReceived(received)
            if end is not None and loop.time() >= end:
                break
        return None

    async def __aiter__(self) -> AsyncIterator[AsyncReceived]:
        while (received := await self.receive()) is not None:
            yield received

    async def close(self) -> None:
        """Stop receiving. The subscription stays."""
        if self._receiving is not None and (received := await self._receiving) is not None:
            await asyncio.to_thread(received.release)
        await asyncio.to_thread(self._subscription.close)

    async def remove(self) -> None:
        """Remove the subscription and close it: no more messages are routed to it."""
        await asyncio.to_thread(self._subscription.remove)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()


class AsyncClient:
    """Publishes and subscribes for tasks of an event loop."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def publish(
        self,
        body: bytes | bytearray | memoryview | Body | Message | None = None,
        *,
        promoted: Values | None = None,
        written: Values | None = None,
        predicates: Values | None = None,
        content_type: str = "application/octet-stream",
        parts: Iterable[Part] = (),
        to: str | None = None,
        key: str | None = None,
    ) -> Published:
        """Publish one message and return its subscribers, as ``Client.publish`` does."""
        return await asyncio.to_thread(
            self._client.publish,
            body,
            promoted=promoted,
            written=written,
            predicates=predicates,
            content_type=content_type,
            parts=parts,
            to=to,
            key=key,
        )

    async def publish_many(self, messages: Sequence[Message], *, key: str | None = None) -> list[Published]:
        """Publish all of these messages or none of them, as ``Client.publish_many`` does."""
        return await asyncio.to_thread(self._client.publish_many, messages, key=key)

    async def directed_to(self, name: str, context: Context | None = None) -> Context:
        """Return the context with the properties that direct a message to the send port or send port group ``name``."""
        return await asyncio.to_thread(self._client.directed_to, name, context)

    async def subscribe(
        self,
        name: str,
        filter: Filter | str,
        *,
        lease: timedelta = timedelta(seconds=30),
        prefetch: int = 20,
        expire_after: timedelta | None = timedelta(days=7),
    ) -> AsyncSubscription:
        """Create the durable subscription ``name``, or continue it, as ``Client.subscribe`` does."""
        subscription = await asyncio.to_thread(
            self._client.subscribe, name, filter, lease=lease, prefetch=prefetch, expire_after=expire_after
        )
        return AsyncSubscription(subscription)

    async def close(self) -> None:
        """Close the connection and release the embedded server. May be called again."""
        await asyncio.to_thread(self._client.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()
