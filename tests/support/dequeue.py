"""Dequeue messages as a host does, without a host instance."""

from __future__ import annotations

import uuid

from postroom.agent.resuming import ResumedInbound
from postroom.agent.routing.table import RoutingTable
from postroom.errors import MessageFailure
from postroom.message import Bytes, Message, Part
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection
from postroom.messagebox.queues import ClaimedMessage, HostQueues
from postroom.messagebox.storage.claimed_messages import ConnectionReader, build_message
from postroom.operations.instances.changes import resume_with_body
from tests.support.box import Box
from tests.support.changes import resume

QUEUES = HostQueues("Default")


def dequeue_all(box: Box) -> list[Message]:
    """Dequeue and complete all messages of the work queue, as a host does. Return them."""
    claimed = _claim(box)
    found = [build_message(message, ConnectionReader(box.connection, QUEUES)) for message in claimed]
    read = [
        Message(
            context=message.context,
            parts=tuple(
                Part(name=part.name, body=Bytes(part.data), content_type=part.content_type, part_id=part.part_id)
                for part in message.parts
            ),
            body_part_name=message.body_part_name,
            message_id=message.message_id,
        )
        for message in found
    ]
    if claimed:
        assert QUEUES.complete(box.connection, claimed[0].claim_id, [message.seq for message in claimed]) == len(
            claimed
        )
    return read


def resume_now(box: Box, instance_id: uuid.UUID, *, body: bytes | None = None) -> list[Message]:
    """Resume a suspended inbound instance and return the messages that are published. If it fails again, the error is
    raised and the instance stays in the work queue."""
    if body is None:
        resume(box.connection, instance_id)
    else:
        resume_with_body(box.connection, instance_id, body)
    [claimed] = _claim(box)
    _handle(box, claimed)
    return dequeue_all(box)


def handle_resumed(box: Box) -> tuple[list[Message], list[MessageFailure]]:
    """Handle all resumed inbound instances. Return the messages that are published, and the failures. An instance that
    fails again stays in the work queue."""
    failures: list[MessageFailure] = []
    for claimed in _claim(box):
        try:
            _handle(box, claimed)
        except MessageFailure as failure:
            failures.append(failure)
    return dequeue_all(box), failures


def _handle(box: Box, claimed: ClaimedMessage) -> None:
    def complete(connection: Connection) -> None:
        assert QUEUES.complete(connection, claimed.claim_id, [claimed.seq]) == 1

    message = build_message(claimed, ConnectionReader(box.connection, QUEUES))
    ResumedInbound("Default", RoutingTable()).handle(box.connection, claimed, message, complete)


def _claim(box: Box) -> list[ClaimedMessage]:
    return QUEUES.dequeue(
        box.connection,
        claim_id=uuid.uuid4(),
        host_instance=0,
        service_class=ServiceClass.MESSAGING_IN_PROCESS,
        limit=100,
    )
