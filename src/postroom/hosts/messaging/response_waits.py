"""Waits for the receivers of messages that were sent, on one event loop for all send ports of a host instance.

An adapter that can return before its receiver has answered (``BeginsToSend``) occupies a dequeue thread only to send
and to finish. In between a message costs a socket and some kilobytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from postroom.adapters.contract import Attempt, ReceivedResponse
from postroom.http.event_loop import EventLoopThread
from postroom.message import Message

_log = logging.getLogger(__name__)

#: How long the thread that has sent waits for the answer itself. That is cheaper than to let another thread finish.
_PATIENCE_SECONDS = 0.005


class Sent(Protocol):
    """What was sent. It receives the answer."""

    def fileno(self) -> int:
        """Return the number of the socket that the answer arrives at."""
        ...

    def get_remaining(self) -> float:
        """Return the seconds until the deadline. Raise TimeoutError after it."""
        ...

    def receive(self) -> bool:
        """Receive what has arrived, without waiting. Return True if the exchange can be finished without waiting."""
        ...

    def receive_within(self, seconds: float) -> bool:
        """Receive for up to ``seconds`` seconds. Return what ``receive`` returns."""
        ...


class Exchange(Protocol):
    """A message that was sent, and the answer of its receiver."""

    @property
    def sent(self) -> Sent: ...

    def finish(self) -> ReceivedResponse | None:
        """Return the response, if one was solicited. Raise what ``send`` or ``solicit`` would raise."""
        ...


@runtime_checkable
class BeginsToSend(Protocol):
    """A send adapter that can return before its receiver has answered."""

    def begin_send(self, message: Message, attempt: Attempt, *, solicits: bool) -> Exchange | None:
        """Send the message, and return the exchange. Return None if the receiver has stored the message."""
        ...


class ResponseWaits:
    """The exchanges that wait for their receivers."""

    def __init__(self) -> None:
        self._loop = EventLoopThread("responses")

    def is_answered(self, exchange: Exchange) -> bool:
        """Return True if the receiver answers within some milliseconds."""
        return exchange.sent.receive_within(_PATIENCE_SECONDS)

    def start(self, exchange: Exchange, resume: Callable[[], None]) -> None:
        """Wait for the receiver, until the deadline of the exchange. Then call ``resume``, in any case once."""
        try:
            self._loop.start(_wait, exchange.sent, resume)
        except RuntimeError as error:  # the thread cannot be started: the caller waits instead
            _log.warning("no event loop for responses: %s", error)
            resume()

    def close(self) -> None:
        self._loop.close()


async def _wait(sent: Sent, resume: Callable[[], None]) -> None:
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    try:
        socket = sent.fileno()
        loop.add_reader(socket, readable.set)
        try:
            while not sent.receive():
                readable.clear()
                async with asyncio.timeout(sent.get_remaining()):
                    await readable.wait()
        finally:
            loop.remove_reader(socket)
    except TimeoutError:
        pass  # finish() reports it
    except Exception:
        _log.exception("the response of a receiver could not be awaited")
    finally:
        resume()
