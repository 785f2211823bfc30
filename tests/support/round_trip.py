"""Sends a message through a send pipeline and receives the result, in memory."""

from __future__ import annotations

from postroom.message import Message
from postroom.pipelines import ReceivePipeline, Send
from postroom.pipelines.documents.disassembled_batch import DecodedInterchange
from postroom.pipelines.documents.message_batch import MessageBatch


def send(pipeline: Send, message: Message) -> Message:
    """Return what the adapter of a send port with this pipeline would send."""
    assert pipeline.problems() == []
    sent = pipeline.run(message)
    assert sent is not None
    return sent


def receive(pipeline: ReceivePipeline, sent: Message) -> list[bytes]:
    """Return the bodies of the messages that a receive location would publish."""
    return [message.data for message in receive_messages(pipeline, sent)]


def receive_messages(pipeline: ReceivePipeline, sent: Message) -> list[Message]:
    """Return the messages that a receive location would publish, with their contexts."""
    assert pipeline.problems() == []
    assert sent.body is not None
    messages: list[Message] = []
    for batch in pipeline.disassemble(sent.body.body):
        assert not batch.failures, batch.failures
        decoded = batch.decoded
        if decoded is None:
            decoded = DecodedInterchange.of(sent, content_type=pipeline.content_type, disassembler=1)
        rows = MessageBatch(batch.messages, decoded)
        messages += [rows.message(row) for row in range(len(rows))]
    return messages
