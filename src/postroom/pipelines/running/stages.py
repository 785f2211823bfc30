"""The stages of a receive pipeline, in their fixed order: decode, disassemble, validate, resolve party (RCV-02).

Decoding makes one message of one message. Disassembly makes batches of documents of it. Validation and party resolution
take a batch and give a batch. A pipeline that is one format has only the second, and runs at once if it has little to
read; all others run with a time limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from postroom.message import Body, Context, Message, Part
from postroom.pipelines.definitions import Format, PassThrough
from postroom.pipelines.documents.disassembled_batch import BatchSize, Decoded, Disassembled
from postroom.pipelines.receive_pipeline import Receive, ReceivePipeline
from postroom.pipelines.rows import document as row_document
from postroom.pipelines.rows.definition import Rows
from postroom.pipelines.running import formats
from postroom.pipelines.running.component_stages import ComponentStages
from postroom.time_limit import TimeLimit

#: Smaller bodies have no time limit. Reading a small document on another thread takes twice as long.
TIME_LIMIT_FROM = 1 << 16


def receive(pipeline: ReceivePipeline, body: Body, context: Context, size: BatchSize) -> Iterator[Disassembled]:
    """The interchange through every stage. In a standard pipeline one bad document fails the whole of it (RCV-12)."""
    for batch in _batches(pipeline, body, context, size):
        if batch.failures and not pipeline.recoverable:
            raise batch.failures[0].failure
        yield batch


def _batches(pipeline: ReceivePipeline, body: Body, context: Context, size: BatchSize) -> Iterator[Disassembled]:
    if isinstance(pipeline, Rows):
        return row_document.disassemble(pipeline, body, size)
    if not isinstance(pipeline, Receive):
        batches = _of_format(pipeline, body, size)
        document_type = formats.document_type(pipeline, pipeline.content_type)
        decoded = Decoded(body=body, context=context, content_type=document_type)
        is_as_it_came = document_type == pipeline.content_type
        return (
            batch
            if is_as_it_came and batch.written is None
            else replace(batch, decoded=decoded.with_written(batch.written))
            for batch in batches
        )
    time_limit = TimeLimit(pipeline.seconds)
    stages = ComponentStages(pipeline, time_limit)
    return time_limit.iterate(lambda: stages.run(Message(context=context, parts=(Part(body=body),)), size))


def _of_format(pipeline: Format, body: Body, size: BatchSize) -> Iterator[Disassembled]:
    if isinstance(pipeline, PassThrough) or body.size < TIME_LIMIT_FROM:
        return formats.disassemble(pipeline, body, size)
    time_limit = TimeLimit(pipeline.call_seconds)
    name = type(pipeline).__name__
    return time_limit.iterate(lambda: time_limit.each(name, formats.disassemble(pipeline, body, size)))
