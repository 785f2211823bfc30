"""The one contract that every send adapter keeps (tests/support/send_adapter_conformance.py checks it).

A send port's adapter is built from its definition, opened once, used by many threads, and closed once:

    adapter = build(definition, home=home)
    adapter.open()
    adapter.send(message, Attempt(instance_id=instance_id, number=1))
    adapter.close()
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Protocol

from postroom.errors import DeliveryRefused
from postroom.message import Message, Part


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """Which try this is. ``instance_id`` is the same for every try to bring one message to one send port, and for
    nothing else, so that a receiver can recognise a repeat by it. ``group`` is the send port group that this copy
    of the message comes through; None if it comes to the port directly."""

    instance_id: uuid.UUID
    number: int = 1
    group: str | None = None


class SendAdapter(Protocol):
    """Brings messages to where a send port sends them.

    Delivery is at least once: after a crash the same message comes again, with the same message id and instance id.
    An adapter makes a repeat harmless where its protocol allows it, and otherwise recognisable.
    """

    def open(self) -> None:
        """Gets ready. Does not fail because the other side is away; that is for ``send`` to find out."""
        ...

    def send(self, message: Message, attempt: Attempt) -> None:
        """Transmits the message; returns only when the other side has it for good.

        Called from several threads at once. Bodies may be larger than memory: read them by ``body.chunks()``. Raises
        DeliveryFailure when trying again may help, DeliveryRefused when it cannot; what the body itself raises passes
        through. After any failure nothing half done is visible, and the adapter can be used again.
        """
        ...

    def close(self) -> None:
        """Lets go of everything. May be called twice, and without ``open``."""
        ...


def body_of(message: Message) -> Part:
    """The body part, which is all that most protocols carry (SND-20)."""
    if message.body is None:
        raise DeliveryRefused(
            f"Message {message.message_id} has no body part to send.",
            hint="Only messages with a body can go through this adapter; terminate the instance.",
        )
    return message.body
