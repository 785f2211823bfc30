"""Runs a receive pipeline over a request or a response, which is one document."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from postroom.agent.streaming.interchange import Chunk, Interchange, check_promoted, read_all_chunks
from postroom.errors import PipelineFailure
from postroom.maps.inbound import choose_pipeline
from postroom.maps.port_maps import PortMaps
from postroom.message import Message, Part
from postroom.pipelines import PassThrough, ReceivePipeline
from postroom.pipelines.documents.disassembled_batch import DecodedInterchange
from postroom.pipelines.documents.message_batch import MessageBatch
from postroom.system_properties import BTS


def read_document(
    pipeline: ReceivePipeline,
    maps: PortMaps,
    interchange: Interchange,
    *,
    authenticate: Callable[[Chunk], Chunk] | None = None,
) -> Message | None:
    """Return the only document of an interchange, without the properties of its port, or None if ``authenticate`` drops
    it. Raise MessageFailure if it fails, or if there is not exactly one."""
    if isinstance(pipeline, PassThrough) and not maps and authenticate is None:
        # Most two-way ports. A table with one document would take a tenth of the time of the whole call.
        check_promoted(interchange.context.promoted)
        received = build_received(interchange, pipeline.content_type)
        return received.with_context(received.context.promote(BTS.InterchangeSequenceNumber, 1))
    chunk = _read_one_document(pipeline, maps, interchange)
    if authenticate is not None:
        chunk = authenticate(chunk)
        if chunk.rejection is not None:
            raise chunk.rejection
    return _build_document(chunk, pipeline.content_type) if chunk.rows else None


def _read_one_document(pipeline: ReceivePipeline, maps: PortMaps, interchange: Interchange) -> Chunk:
    """Return the chunk with the only document of an interchange. Raise MessageFailure if it fails, or has not exactly
    one."""
    chunks = read_all_chunks(choose_pipeline(pipeline, maps), interchange)
    for chunk in chunks:
        if chunk.rejection is not None:
            raise chunk.rejection
        if chunk.failures:
            raise chunk.failures[0].failure
    documents = sum(chunk.rows for chunk in chunks)
    if documents != 1:
        raise PipelineFailure(
            f"The interchange has {documents} documents, but a two-way port needs exactly one.",
            why="Each request has one response.",
            hint="Send each document in a request of its own.",
        )
    return next(chunk for chunk in chunks if chunk.rows)


def _build_document(chunk: Chunk, content_type: str) -> Message:
    """Return the only document of a chunk, without the properties of its port."""
    assert chunk.documents is not None
    decoded = chunk.decoded or DecodedInterchange(body=chunk.source, context=chunk.context, content_type=content_type)
    if "content_type" in chunk.documents.column_names:
        mapped: str | None = chunk.documents["content_type"][0].as_py()
        decoded = replace(decoded, content_type=mapped or decoded.content_type)
    return MessageBatch(chunk.documents, decoded).message(0)


def build_received(interchange: Interchange, content_type: str) -> Message:
    """Return an interchange as it was received, to be suspended."""
    return Message(context=interchange.context, parts=(Part(body=interchange.body, content_type=content_type),))
