"""The adapter that sends nowhere, for benchmarks and for ports that only keep a subscription alive."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from postroom.adapters.contract import Attempt, SendAdapter
from postroom.adapters.definition import AdapterDefinition
from postroom.clock import Clock, system_clock
from postroom.message import Message


class Null(AdapterDefinition):
    """Takes every message and does nothing with it: ``adapters.Null()``."""

    transport_type: ClassVar[str] = "NULL"

    kind: Literal["null"] = "null"

    def address(self, home: Path) -> str:
        return "null:"

    def make_sender(self, home: Path, *, clock: Clock = system_clock) -> SendAdapter:
        return NullSender()


class NullSender:
    """Reads body and context, as any adapter has to, and lets go of them."""

    def open(self) -> None:
        pass

    def send(self, message: Message, attempt: Attempt) -> None:
        for part in message.parts:
            for _ in part.body.chunks():
                pass
        len(message.context)

    def close(self) -> None:
        pass
