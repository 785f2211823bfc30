"""The stages of a receive pipeline, in their fixed order: decode, disassemble, validate, resolve party (RCV-02).

Decoding makes one message of one message. Disassembly makes batches of documents of it. Validation and party resolution
take a batch and give a batch. A pipeline that is one format has only the second, and runs at once; one with components
runs under watch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from postroom.message import Body, Context
from postroom.pipelines import formats, row_document
from postroom.pipelines.component_stages import ComponentStages
from postroom.pipelines.disassembled import BatchSize, Decoded, Disassembled
from postroom.pipelines.receive_definition import Receive, ReceivePipeline
from postroom.pipelines.rows import Rows
from postroom.pipelines.watch import Watch


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
        batches = formats.disassemble(pipeline, body, size)
        document_type = formats.document_type(pipeline, pipeline.content_type)
        if document_type == pipeline.content_type:
            return batches
        decoded = Decoded(body=body, context=context, content_type=document_type)
        return (replace(batch, decoded=decoded) for batch in batches)
    watch = Watch(pipeline.seconds)
    stages = ComponentStages(pipeline, watch)
    return watch.over(lambda: stages.run(body, context, size))
