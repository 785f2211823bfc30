"""Decides whose password is verified next.

A verification needs 16 MB of memory and much time by design, so only a few run at once, and the others wait. Clients
take turns, and those that have sent wrong passwords come last. So a client that tries many passwords delays itself, and
not the first log-in of another client.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from postroom.http.event_loop import build_capacity_error

_AT_ONCE = 2
_MAX_WAIT = 30.0
_MAX_REMEMBERED = 10_000


class PasswordTurns:
    """The requests that wait for the verification of a password, by client. It runs on the event loop, and a waiting
    request holds no thread."""

    def __init__(self, *, at_once: int = _AT_ONCE, max_wait: float = _MAX_WAIT) -> None:
        self._free = at_once
        self._max_wait = max_wait
        #: The client whose turn was longest ago is first.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._wrong: Counter[str] = Counter()

    @asynccontextmanager
    async def take_turn(self, client: str) -> AsyncIterator[None]:
        """Wait for the turn of a client. Raise RequestFailed after ``max_wait`` seconds."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        self._give_turns()
        try:
            try:
                async with asyncio.timeout(self._max_wait):
                    await turn
            except TimeoutError:
                raise build_capacity_error() from None
            yield
        finally:
            if turn.done() and not turn.cancelled():
                self._free += 1
            self._give_turns()

    def record_result(self, client: str, *, is_correct: bool) -> None:
        """Remember the result of a verification. A correct password clears the wrong ones of its client."""
        if is_correct:
            self._wrong.pop(client, None)
            return
        if len(self._wrong) >= _MAX_REMEMBERED:
            self._wrong.clear()
        self._wrong[client] += 1

    def _give_turns(self) -> None:
        while self._free and self._waiting:
            client = min(self._waiting, key=self._wrong.__getitem__)
            turns = self._waiting.pop(client)
            turn = turns.popleft()
            if turns:
                self._waiting[client] = turns  # now the last one
            if not turn.cancelled():  # its request has given up
                turn.set_result(None)
                self._free -= 1
