"""Reads the XML or JSON document of a flat file record when it is resumed."""

from __future__ import annotations

from collections.abc import Iterator

from postroom.errors import PipelineFailure
from postroom.message import Body
from postroom.pipelines.documents.disassembled_batch import BatchBuilder, BatchSize, DisassembledBatch, read_whole
from postroom.pipelines.flat.definition import FlatDocument
from postroom.pipelines.flat.document_texts import (
    FieldTexts,
    read_json_object,
    read_json_texts,
    read_xml_texts,
)
from postroom.pipelines.flat.record import FlatPromotion
from postroom.pipelines.xml.promotion import get_message_type
from postroom.pipelines.xml.tree import read_tree


def disassemble(pipeline: FlatDocument, body: Body, size: BatchSize) -> Iterator[DisassembledBatch]:
    """Yield one message. The properties that are promoted from the header are not in it."""
    content = read_whole(body, "document")
    texts = _read_json(pipeline, content) if pipeline.output == "json" else _read_xml(pipeline, content)
    values = FlatPromotion(pipeline, ()).values([texts.get(name) for name in pipeline.record.names])
    builder = BatchBuilder(promotes=pipeline.promotes)
    builder.add(1, content, values, offset=0, message_type=pipeline.message_type)
    yield builder.build()


def _read_xml(pipeline: FlatDocument, content: bytes) -> FieldTexts:
    root = read_tree(content)
    if (found := get_message_type(root)) != pipeline.message_type:
        raise PipelineFailure(
            f"The document is of the type {found!r}.",
            why=f"The records of this flat file become documents of the type {pipeline.message_type!r}.",
            hint="Correct the document. It must have the same form as the documents of the other records.",
        )
    return read_xml_texts(root, pipeline.record.names)


def _read_json(pipeline: FlatDocument, content: bytes) -> FieldTexts:
    return read_json_texts(read_json_object(content), pipeline.record.names)
