"""The adapter that sends nowhere, for benchmarks and for ports that only keep a subscription alive."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from postroom.adapters.contract import Attempt
from postroom.adapters.definition import AdapterDefinition
from postroom.message import Message


class Null(AdapterDefinition):
    """Takes every message and does nothing with it: ``adapters.Null()``."""

    transport_type: ClassVar[str] = "NULL"
    sends: ClassVar[bool] = True

    kind: Literal["null"] = "null"

    def problems(self) -> list[str]:
        return []

    def address(self, home: Path) -> str:
        return "null:"


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
