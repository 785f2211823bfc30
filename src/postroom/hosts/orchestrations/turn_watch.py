"""Ends turns of orchestrations that never wait.

The code of an orchestration runs until it waits. Code that does not, such as an endless loop, would occupy its thread
forever. The watch suspends the instance, so that its claim is no longer valid, and then interrupts the thread. A
thread that runs code outside of Python, such as a call that blocks, is not interrupted: the process has to end.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager

from postroom.messagebox.orchestration_instances import ClaimedInstance
from postroom.orchestrations import event_loop
from postroom.processes.background_loop import BackgroundLoop
from postroom.processes.time_limit import abandon_thread


class _Turn:
    """The code of an instance that runs in a thread now. ``turns`` contains the turn of each thread, by its ident."""

    def __init__(self, claimed: ClaimedInstance, limit: float, turns: dict[int | None, _Turn]) -> None:
        self.claimed = claimed
        self.thread = threading.current_thread()
        #: When it is interrupted, and after that, when it counts as stuck.
        self.deadline = time.monotonic() + limit
        self.is_interrupted = False
        self.lock = threading.Lock()
        self._turns = turns

    def __enter__(self) -> None:
        self._turns[self.thread.ident] = self

    def __exit__(self, *_: object) -> None:
        # From here on the thread is not interrupted.
        with self.lock:
            self._turns.pop(self.thread.ident, None)


class TurnWatch:
    """Watches the turns of all threads. ``suspend`` is called with an instance whose turn takes longer than ``limit``
    seconds, and with a description of the place. ``give_up`` is called if the thread still runs ``limit``
    seconds later."""

    def __init__(
        self, limit: float, suspend: Callable[[ClaimedInstance, str], None], give_up: Callable[[], None]
    ) -> None:
        self._limit = limit
        self._suspend = suspend
        self._give_up = give_up
        self._turns: dict[int | None, _Turn] = {}
        self.loop = BackgroundLoop("watch orchestrations", self._check)

    def watch(self, claimed: ClaimedInstance) -> AbstractContextManager[None]:
        """Watch the code that runs inside, in this thread."""
        return _Turn(claimed, self._limit, self._turns)

    def end_turn(self) -> None:
        """Forget the turn of this thread. Its own end does not, if the thread was interrupted at that moment."""
        self._turns.pop(threading.get_ident(), None)

    @property
    def stuck_threads(self) -> list[threading.Thread]:
        """The threads that were interrupted and still run."""
        return [turn.thread for turn in list(self._turns.values()) if turn.is_interrupted]

    def _check(self) -> float:
        for turn in list(self._turns.values()):
            if time.monotonic() < turn.deadline:
                continue
            if turn.is_interrupted:
                self._give_up()
                continue
            self._suspend(turn.claimed, self._describe(turn))
            with turn.lock:
                if self._turns.get(turn.thread.ident) is turn:
                    turn.is_interrupted = True
                    turn.deadline = time.monotonic() + self._limit
                    abandon_thread(turn.thread)
        return self._limit / 10

    def _describe(self, turn: _Turn) -> str:
        frame = sys._current_frames().get(turn.thread.ident or 0)
        frames = [] if frame is None else traceback.extract_stack(frame)
        # What is below the event loop is the orchestration, and what it calls.
        inside = [number for number, one in enumerate(frames) if one.filename == event_loop.__file__]
        place = "".join(traceback.format_list(frames[max(inside, default=-1) + 1 :]))
        return (
            f"The orchestration neither waited nor ended within {self._limit:g} seconds.\n{place}"
            "Correct the loop, or do long work in a step; then resume the instance."
        )
