"""A send adapter that records its messages and behaves as a test decides."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from postroom.adapters import Attempt, SendDefinition
from postroom.adapters.contract import Outgoing
from postroom.errors import DeliveryFailure
from postroom.message import Message
from postroom.system_properties import BTS
from tests.support.waiting import PATIENCE


@dataclass(frozen=True, kw_only=True)
class RecordedSend:
    """One call of ``send``: the message, its attempt, and the send port."""

    port: str
    message: Message
    attempt: Attempt
    body: bytes


class RecordingAdapter:
    """The adapter of every send port of a host. ``behave`` runs in the dequeue thread. It may raise or wait.

    ``attempts`` contains all attempts that were started, ``sent`` the successful ones, ``batches`` the sizes of all
    batches.
    """

    def __init__(self, behave: Callable[[Message, Attempt], None] = lambda message, attempt: None) -> None:
        self.behave = behave
        self.attempts: list[RecordedSend] = []
        self.sent: list[RecordedSend] = []
        self.batches: list[int] = []
        self.opened = 0
        self.closed = 0
        self._lock = threading.Lock()

    def build(self, definition: SendDefinition, home: Path) -> RecordingAdapter:
        return self

    def open(self) -> None:
        self.opened += 1

    def close(self) -> None:
        self.closed += 1

    def send(self, message: Message, attempt: Attempt) -> None:
        body = message.body.data if message.body is not None else b""
        sent = RecordedSend(port=str(message.context[BTS.SPName]), message=message, attempt=attempt, body=body)
        with self._lock:
            self.attempts.append(sent)
        self.behave(message, attempt)
        with self._lock:
            self.sent.append(sent)

    def send_batch(self, batch: Sequence[Outgoing]) -> list[Exception | None]:
        """Send each message with ``send``. Used if the adapter of the port takes batches."""
        with self._lock:
            self.batches.append(len(batch))
        errors: list[Exception | None] = []
        for message, attempt in batch:
            try:
                self.send(message, attempt)
                errors.append(None)
            except Exception as error:
                errors.append(error)
        return errors

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.sent]


def fail_always(message: Message, attempt: Attempt) -> None:
    raise DeliveryFailure("The receiver is down.", why="It does not answer.", hint="Wait.")


class BlockedSend:
    """A behaviour: every attempt waits until ``released`` is set."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def __call__(self, message: Message, attempt: Attempt) -> None:
        if not self.released.wait(PATIENCE):
            raise DeliveryFailure("The test did not release the attempt.")
