"""The adapter that discards messages, for benchmarks and for ports that only need a subscription."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from postroom.adapters.contract import Attempt, SendAdapter, SendDefinition
from postroom.clock import Clock, system_clock
from postroom.message import Message


class Null(SendDefinition):
    """Discards every message: ``adapters.Null()``."""

    transport_type: ClassVar[str] = "NULL"

    kind: Literal["null"] = "null"

    def address(self, home: Path) -> str:
        return "null:"

    def make_sender(self, home: Path, *, clock: Clock = system_clock) -> SendAdapter:
        return NullSender()


class NullSender(SendAdapter):
    """Reads the body and the context, as every adapter does, and discards them."""

    def send(self, message: Message, attempt: Attempt) -> None:
        for part in message.parts:
            for _ in part.body.chunks():
                pass
        len(message.context)
