"""Send adapters that remember what they were given, and do what a test tells them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from postroom.adapters import Attempt, PortAdapter
from postroom.errors import DeliveryFailure
from postroom.message import Message
from postroom.system_properties import BTS
from tests.support.waiting import PATIENCE


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What an adapter was given, and through which port."""

    port: str
    message: Message
    attempt: Attempt
    body: bytes


class Recorder:
    """The adapter of every port of a host. ``behave`` runs in the dequeue thread and may raise, or wait.

    An attempt is noted when it begins, in ``began``, and again in ``sent`` when it has gone well.
    """

    def __init__(self, behave: Callable[[Message, Attempt], None] = lambda message, attempt: None) -> None:
        self.behave = behave
        self.began: list[Sent] = []
        self.sent: list[Sent] = []
        self.opened = 0
        self.closed = 0
        self._lock = threading.Lock()

    def build(self, definition: PortAdapter, home: Path) -> Recorder:
        return self

    def open(self) -> None:
        self.opened += 1

    def close(self) -> None:
        self.closed += 1

    def send(self, message: Message, attempt: Attempt) -> None:
        body = message.body.data if message.body is not None else b""
        sent = Sent(port=str(message.context[BTS.SPName]), message=message, attempt=attempt, body=body)
        with self._lock:
            self.began.append(sent)
        self.behave(message, attempt)
        with self._lock:
            self.sent.append(sent)

    @property
    def bodies(self) -> list[bytes]:
        return [one.body for one in self.sent]


def always_fails(message: Message, attempt: Attempt) -> None:
    raise DeliveryFailure("The other side is away.", why="Nobody answers.", hint="Wait.")


class Stuck:
    """Behaviour: every attempt waits until ``let_go`` is set."""

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def __call__(self, message: Message, attempt: Attempt) -> None:
        if not self.let_go.wait(PATIENCE):
            raise DeliveryFailure("The test forgot to let go.")
