"""Sends each message to the address in its context, with the adapter that fits the address."""

from __future__ import annotations

from pathlib import Path

from postroom.adapters.contract import Attempt
from postroom.adapters.dynamic.addresses import FileTarget, NullTarget, UrlTarget, resolve_target
from postroom.adapters.dynamic.definition import Dynamic
from postroom.adapters.file.definition import File
from postroom.adapters.file.send import FileSender
from postroom.adapters.http.definition import DEFAULT_CONNECTIONS
from postroom.adapters.http.send import Exchange, HttpClient
from postroom.adapters.null import NullSender
from postroom.clock import Clock
from postroom.message import Message


class DynamicSender:
    """Sends to all addresses of one port. HTTP connections are pooled by origin."""

    def __init__(self, definition: Dynamic, *, home: Path, clock: Clock) -> None:
        self._definition = definition
        self._home = home
        self._clock = clock
        self._http = HttpClient(timeout=definition.timeout, connections=DEFAULT_CONNECTIONS)

    def open(self) -> None:
        self._http.open()

    def begin_send(self, message: Message, attempt: Attempt, *, solicits: bool) -> Exchange | None:
        """Send the message. Return before an HTTP server has answered, and None if the message is sent."""
        match resolve_target(message.context, self._definition, self._home):
            case FileTarget(folder=folder, name=name):
                FileSender(File(folder, name=name), home=self._home, clock=self._clock).send(message, attempt)
            case UrlTarget(url=url):
                return self._http.begin(url, message, attempt, solicits=solicits)
            case NullTarget():
                NullSender().send(message, attempt)
        return None

    def send(self, message: Message, attempt: Attempt) -> None:
        exchange = self.begin_send(message, attempt, solicits=False)
        if exchange is not None:
            exchange.finish()

    def close(self) -> None:
        self._http.close()
