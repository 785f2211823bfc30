"""Claimed messages that failed at a port which routes failures: an error message in place of the suspension.

Used by hosts, for what a send port could not transmit and for what came in, was resumed and failed again. The parts
are shared with the original, whatever their size. Publishing the error message and completing the original are one
transaction; when it rolls back, the original is where it was.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from postroom.agent.error_reports import Failure, is_error_report
from postroom.agent.identity import Kind, derive_id, unit_for_failure
from postroom.agent.publish import Publisher
from postroom.agent.routes import StoredMessage
from postroom.agent.routing.matching import Matcher, ProcedureMatcher
from postroom.errors import ClaimLost
from postroom.message import Bytes, Message, Part
from postroom.messagebox.connection import Connection
from postroom.messagebox.queues import ClaimedMessage, HostQueues
from postroom.messagebox.storage.stored_messages import StoredContext


class FailedMessages:
    """Publishes error messages. The MessageBox finds their subscribers: failures are rare, an index is large."""

    def __init__(self, queues: HostQueues) -> None:
        self._queues = queues

    def route(self, connection: Connection, claimed: ClaimedMessage, failure: Failure) -> bool:
        """Publishes the error message and completes the claimed one, in one transaction on ``connection``.

        False, and nothing is done, if nobody wants or may have the error message, or if the message is one itself.
        ClaimLost if another host instance has the message by now."""
        if claimed.context is None:
            return False
        original = StoredContext(claimed.context, {}, claimed.originator)
        if is_error_report(original):
            return False
        unit = unit_for_failure(claimed.instance_id)
        error = Message(context=failure.build_context(original), message_id=derive_id(unit, Kind.MESSAGE, 0))
        publisher = Publisher(connection, ProcedureMatcher())
        batch = publisher.run(lambda matcher: ErrorMessage(error, unit, matcher, self._queues, claimed))
        return bool(len(batch.matches.rows))


class ErrorMessage(StoredMessage):
    """An error message that replaces a claimed message and shares its parts."""

    def __init__(
        self, error: Message, unit: uuid.UUID, matcher: Matcher, queues: HostQueues, claimed: ClaimedMessage
    ) -> None:
        super().__init__(error, unit, matcher)
        self._queues = queues
        self._claimed = claimed

    def write_messages(self, connection: Connection) -> None:
        part_ids = self._queues.insert_error_message(
            connection, self._claimed, error_id=self.message.message_id, context=self.message.context.to_json()
        )
        if part_ids is None:
            raise ClaimLost("The message was given to another host instance.")
        # Names and contents are the original's and stored already. Only the ids are referred to.
        parts = [Part(name=str(part_id), body=Bytes(b""), part_id=part_id) for part_id in part_ids]
        self.routed.messages = [replace(self.message, parts=tuple(parts))]
