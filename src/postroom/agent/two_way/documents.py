"""Runs a receive pipeline over a request or a response, which is one document."""

from __future__ import annotations

from dataclasses import replace

from postroom.agent.receiving.interchange import Chunk, Interchange, read_all_chunks
from postroom.errors import PipelineFailure
from postroom.maps.inbound import MappedPipeline
from postroom.maps.port_maps import PortMaps
from postroom.message import Message, Part
from postroom.pipelines import ReceivePipeline
from postroom.pipelines.documents.disassembled_batch import DecodedInterchange
from postroom.pipelines.documents.message_batch import MessageBatch


def read_one_document(pipeline: ReceivePipeline, maps: PortMaps, interchange: Interchange) -> Chunk:
    """Return the chunk with the only document of an interchange. Raise MessageFailure if it fails, or has not exactly
    one."""
    chunks = read_all_chunks(MappedPipeline(pipeline, maps) if maps else pipeline, interchange)
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


def build_document(chunk: Chunk, content_type: str) -> Message:
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
