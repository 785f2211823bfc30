"""A receiver that fails often: it refuses, hangs, and drops connections before and after it has read a message."""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections.abc import Callable
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from tests.support.delivery_chaos.record import Record
from tests.support.http_receiver import Handler, HttpReceiver

#: Longer than the timeout of the ports.
_HANG_SECONDS = 3.0


class UnreliableReceiver:
    """Records the arrivals of each path. Answers an accepted message with its number and the number of the answer."""

    def __init__(self, record: Record, receiver: HttpReceiver, generator: random.Random) -> None:
        self._record = record
        self._generator = generator
        self._lock = threading.Lock()
        self._is_reliable = threading.Event()
        self._answers = itertools.count()
        self._senders: WeakKeyDictionary[Handler, int | None] = WeakKeyDictionary()
        #: Returns the process that has the connection from this port.
        self.find_sender: Callable[[int], int | None] = lambda _: None
        receiver.behave = self._behave

    def become_reliable(self) -> None:
        """Accept every message from now on."""
        self._is_reliable.set()

    def _behave(self, handler: Handler) -> None:
        with self._lock:
            chance = 1.0 if self._is_reliable.is_set() else self._generator.random()
        if chance < 0.02:
            handler.close_after(1)
        elif chance < 0.06:
            handler.answer(503, b"busy")
        else:
            self._take(handler, chance)

    def _take(self, handler: Handler, chance: float) -> None:
        request = handler.take()
        number = json.loads(request.body)["number"]
        # A handler serves one connection, which hosts use again and again.
        if handler not in self._senders:
            self._senders[handler] = self.find_sender(handler.client_address[1])
        sender = self._senders[handler]
        sequence = request.headers.get("Postroom-Sequence-Number")
        arrival = self._record.add_arrival(
            urlsplit(request.path).path.strip("/"),
            number,
            sender=sender,
            message_id=request.headers["Postroom-Message-Id"],
            sequence=None if sequence is None else int(sequence),
        )
        if chance < 0.08:
            handler.respond(500, b"failed after reading")
        elif chance < 0.10:
            handler.close_connection = True  # the message is read, and the sender does not know it
        elif chance < 0.105:
            self._is_reliable.wait(_HANG_SECONDS)
            handler.close_connection = True
        else:
            # A sender that has the response may repeat the message only because of a fault.
            arrival.is_accepted = True
            handler.respond(200, json.dumps({"number": number, "answer": next(self._answers)}).encode())
