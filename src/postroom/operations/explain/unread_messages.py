"""Find messages that were suspended before a pipeline read them. Their stored content is what was received."""

from __future__ import annotations

from dataclasses import dataclass

from postroom.agent.streaming.interchange import Interchange
from postroom.agent.streaming.suspended_context import resume_interchange
from postroom.messagebox.connection import Connection
from postroom.messagebox.queues import QueueTask
from postroom.messagebox.storage.spool import StoredMessage, load_message
from postroom.operations.messages import list_referring_instances
from postroom.ports.receive_locations import ReceiveLocation, find_receive_location


@dataclass(frozen=True, kw_only=True)
class UnreadMessage:
    """A stored message that goes through its receive pipeline when it is resumed."""

    location: ReceiveLocation | None
    """None if the location is not deployed any more."""
    interchange: Interchange


def find_unread(connection: Connection, message: StoredMessage) -> UnreadMessage | None:
    """Return the message as its location would resume it. Return None if a pipeline has read it."""
    for instance in list_referring_instances(connection, message.message_id):
        if instance.task is QueueTask.RECEIVE:
            location = None if instance.service_id is None else find_receive_location(connection, instance.service_id)
            interchange = resume_interchange(load_message(connection, message), message.original_context)
            return UnreadMessage(location=location, interchange=interchange)
    return None
