"""The seam to the Message Agent: what happens to a resumed message that has not been published yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from postroom.message import Message
from postroom.messagebox.connection import Connection
from postroom.messagebox.queues import ClaimedMessage


class InboundHandler(Protocol):
    """Runs the receive pipeline again, or publishes again, what was suspended on its way in and has been resumed."""

    def handle(
        self,
        connection: Connection,
        claimed: ClaimedMessage,
        message: Message,
        complete: Callable[[Connection], None],
    ) -> None:
        """Publishes the message and calls ``complete`` in the same transaction on ``connection``, which is in no
        transaction yet.

        ``claimed.task`` says what to do (2: run the receive pipeline again, 3: publish as it is), and
        ``claimed.service_id`` which receive location it is. Bodies may be read while a COPY on ``connection`` is under
        way. ``complete`` raises ClaimLost if another host instance has the row by now; let it pass through, so that the
        transaction rolls back. A PostroomError, such as PipelineFailure or RoutingFailure, suspends the instance again
        with that reason.
        """
        ...
