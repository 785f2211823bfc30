"""Sends each message to the address that it carries, with the adapter that the address asks for."""

from __future__ import annotations

from pathlib import Path

from postroom.adapters.contract import Attempt
from postroom.adapters.dynamic.addresses import ToFile, ToNowhere, ToUrl, target_of
from postroom.adapters.dynamic.definition import Dynamic
from postroom.adapters.file.definition import File
from postroom.adapters.file.send import FileSender
from postroom.adapters.http.definition import DEFAULT_CONNECTIONS
from postroom.adapters.http.send import HttpClient
from postroom.adapters.null import NullSender
from postroom.clock import Clock
from postroom.message import Message


class DynamicSender:
    """One for all addresses: connections are kept by their origin, and files need nothing kept."""

    def __init__(self, definition: Dynamic, *, home: Path, clock: Clock) -> None:
        self._definition = definition
        self._home = home
        self._clock = clock
        self._http = HttpClient(timeout=definition.timeout, connections=DEFAULT_CONNECTIONS)

    def open(self) -> None:
        self._http.open()

    def send(self, message: Message, attempt: Attempt) -> None:
        match target_of(message.context, self._definition, self._home):
            case ToFile(folder=folder, name=name):
                FileSender(File(folder, name=name), home=self._home, clock=self._clock).send(message, attempt)
            case ToUrl(url=url):
                self._http.post(url, message, attempt)
            case ToNowhere():
                NullSender().send(message, attempt)

    def close(self) -> None:
        self._http.close()
