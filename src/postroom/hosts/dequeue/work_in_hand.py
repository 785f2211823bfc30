"""What a host instance has claimed and has in memory: waiting for a thread, or in a thread's hands.

The poller puts in, the dequeue threads take out, and the completer says what is settled. When the instance loses its
lock everything that waits is forgotten at once, and nothing is handed out until it has the lock again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from postroom.messagebox.queues import ClaimedMessage


class WorkInHand:
    """A bounded queue in memory that knows what is in it, or was taken from it, and is not settled yet.

    A thread takes without a lock whatever waits, because for every message a lock costs more than all the rest of the
    taking: popping from a deque is one step for all threads. Whoever pops a message has it, be that a thread or
    ``shut``.
    """

    def __init__(self, capacity: int) -> None:
        # In two halves: while the threads work on the one, the other is fetched. Never less at a time, because polling
        # for single messages costs more than it gains.
        self._half = max(1, capacity // 2)
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._room_made = threading.Condition(self._lock)
        self._emptied = threading.Condition(self._lock)
        self._settled = threading.Condition(self._lock)
        self._waiting: deque[ClaimedMessage] = deque()
        # Room that claimers were given and have not filled yet. Two of them work at the same time.
        self._reserved = 0
        # Somebody wants to know when no more than this many wait.
        self._looked_out_for = -1
        self._held: set[int] = set()
        self._generation = 0
        self._open = False
        self._ended = False

    # -- the poller's side -------------------------------------------------------------------------------------

    def wait_for_room(self, timeout: float, *, when_empty: bool = False) -> tuple[int, int]:
        """Reserve room. Return how many messages may be put in, and the generation to put them in with.

        There is room when half of it is free, or ``when_empty`` when nothing waits; there is none while it is shut. The
        caller returns the room with ``release_room`` after its claim.
        """
        most, changed = (0, self._emptied) if when_empty else (self._half, self._room_made)
        with self._lock:
            # Before the look, so that whoever takes after it looks too.
            self._looked_out_for = max(self._looked_out_for, most)
            if not self._has_room(most) and not self._ended:
                changed.wait(timeout)
            room = self._half if self._has_room(most) else 0
            self._reserved += room
            return room, self._generation

    def release_room(self, room: int) -> None:
        """Return reserved room, whether or not it was filled."""
        with self._lock:
            self._reserved -= room
            self._room_made.notify()
            self._emptied.notify()

    def _has_room(self, most: int) -> bool:
        if not self._open or self._ended:
            return False
        waiting = len(self._waiting)
        # What is done but not stored counts too: a slow MessageBox must slow down its threads.
        return (
            waiting <= most and waiting + self._reserved <= self._half and len(self._held) - waiting <= 4 * self._half
        )

    def put(self, claimed: Sequence[ClaimedMessage], generation: int) -> bool:
        """False, and nothing is put in, if it was shut since the generation was read."""
        with self._lock:
            if not self._open or self._generation != generation:
                return False
            self._held.update([one.seq for one in claimed])
            self._waiting.extend(claimed)
            self._arrived.notify(len(claimed))
            return True

    # -- the threads' side -------------------------------------------------------------------------------------

    def take(self) -> ClaimedMessage | None:
        """The next message, when there is one; None when there will be none any more."""
        while True:
            try:
                taken = self._waiting.popleft()
            except IndexError:
                if not self._something_arrives():
                    return None
                continue
            if len(self._waiting) <= self._looked_out_for:
                self._say_that_there_is_room()
            return taken

    def _something_arrives(self) -> bool:
        """Waits until there is something, which another thread may take first; False if there will be nothing."""
        with self._lock:
            while not self._waiting and not self._ended:
                self._arrived.wait()
            return bool(self._waiting)

    def _say_that_there_is_room(self) -> None:
        with self._lock:
            self._room_made.notify()
            if self._waiting:
                self._looked_out_for = 0
            else:
                self._looked_out_for = -1
                self._emptied.notify()

    # -- the completer's side ----------------------------------------------------------------------------------

    def settle(self, seqs: Sequence[int]) -> None:
        """The outcome of these is stored."""
        with self._lock:
            self._held.difference_update(seqs)
            self._room_made.notify()
            self._emptied.notify()
            if not self._held:
                self._settled.notify_all()

    # -- the instance's side -----------------------------------------------------------------------------------

    def shut(self) -> list[ClaimedMessage]:
        """Hands out nothing from now on, and forgets (and returns) what waits."""
        with self._lock:
            self._open = False
            self._generation += 1
            forgotten = []
            while self._waiting:
                with suppress(IndexError):  # a thread was quicker, and has it
                    forgotten.append(self._waiting.popleft())
            forgotten += self._forget_behind(forgotten)
            self._held.difference_update([one.seq for one in forgotten])
            if not self._held:
                self._settled.notify_all()
            return forgotten

    def _forget_behind(self, forgotten: Sequence[ClaimedMessage]) -> list[ClaimedMessage]:
        """What is in memory and does not wait for a thread yet, under the lock; nothing here."""
        return []

    def reopen(self) -> None:
        with self._lock:
            self._open = True
            self._room_made.notify()
            self._emptied.notify()

    def end(self) -> None:
        """The threads may go home when nothing waits any more."""
        with self._lock:
            self._ended = True
            self._arrived.notify_all()
            self._room_made.notify()
            self._emptied.notify()

    def wait_until_settled(self, timeout: float) -> bool:
        """Waits until nothing is held; False if that takes too long."""
        with self._lock:
            return self._settled.wait_for(lambda: not self._held, timeout)

    @property
    def held(self) -> list[int]:
        """What is in memory and not settled."""
        with self._lock:
            return list(self._held)
