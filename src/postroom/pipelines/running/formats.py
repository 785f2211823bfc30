"""Runs the formats that are pipelines of their own, and recognises their content."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from postroom.message import FRAGMENT_SIZE, Body, Context
from postroom.pipelines.definitions import (
    Csv,
    FlatDocument,
    FlatFile,
    Format,
    Json,
    JsonLines,
    PassThrough,
    Xml,
    XmlReceive,
)
from postroom.pipelines.documents.disassembled_batch import (
    BatchSize,
    DecodedInterchange,
    DisassembledBatch,
    arrow_schema,
)
from postroom.pipelines.flat import csv_rows
from postroom.pipelines.flat import file as flat_file
from postroom.pipelines.flat import resumed_record as flat_resumed_record
from postroom.pipelines.json import disassembler as json_disassembler
from postroom.pipelines.json.path import ROOT
from postroom.pipelines.xml import document as xml_document
from postroom.pipelines.xml import receive as xml_receive
from postroom.time_limit import TimeLimit

#: Smaller bodies have no time limit. Reading a small document on another thread takes twice as long.
MIN_TIMED_SIZE = 1 << 16

_JSON_STARTS = b'{["-0123456789'
_BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")


def run_format(pipeline: Format, body: Body, context: Context, size: BatchSize) -> Iterator[DisassembledBatch]:
    """Yield the batches of a pipeline that is one format. It has a time limit unless the body is small."""
    if isinstance(pipeline, PassThrough) or body.size < MIN_TIMED_SIZE:
        batches = disassemble(pipeline, body, size)
    else:
        time_limit = TimeLimit(pipeline.call_seconds)
        name = type(pipeline).__name__
        batches = time_limit.iterate(lambda: time_limit.each(name, disassemble(pipeline, body, size)))
    content_type = document_type(pipeline, pipeline.content_type)
    decoded = DecodedInterchange(body=body, context=context, content_type=content_type)
    is_same_type = content_type == pipeline.content_type
    return (
        batch if is_same_type and batch.written is None else replace(batch, decoded=decoded.with_written(batch.written))
        for batch in batches
    )


def disassemble(pipeline: Format, body: Body, size: BatchSize) -> Iterator[DisassembledBatch]:
    """Run the disassembler of a format. Failures of a document are in the batches. A failure of the whole interchange
    is raised."""
    match pipeline:
        case PassThrough():
            return _pass_through(body)
        case Json():
            return json_disassembler.disassemble_document(pipeline, body, size)
        case JsonLines():
            return json_disassembler.disassemble_lines(pipeline, body, size)
        case Xml():
            return xml_document.disassemble(pipeline, body, size)
        case XmlReceive():
            return xml_receive.disassemble(pipeline, body, size)
        case Csv():
            return csv_rows.disassemble(pipeline, body, size)
        case FlatDocument():
            return flat_resumed_record.disassemble(pipeline, body, size)
        case FlatFile():
            return flat_file.disassemble(pipeline, body, size)


def _pass_through(body: Body) -> Iterator[DisassembledBatch]:
    """Yield the interchange as one message (TYP-02), also if it is empty. A large body is passed by reference."""
    by_reference = body.size > FRAGMENT_SIZE
    row = {
        "number": 1,
        "body": None if by_reference else b"".join(body.chunks()),
        "offset": 0 if by_reference else None,
        "length": body.size if by_reference else None,
        "message_type": None,
    }
    yield DisassembledBatch(messages=pa.RecordBatch.from_pylist([row], schema=arrow_schema(())))


def document_type(pipeline: Format, interchange_type: str) -> str:
    """Return the media type of the documents of an interchange with this media type."""
    match pipeline:
        case PassThrough():
            return interchange_type
        case FlatFile():
            return pipeline.document_type
    return pipeline.content_type


def probe(pipeline: Format, head: bytes) -> bool:
    """Return True if an interchange that starts with ``head`` looks like the format (RCV-03).

    XML starts with ``<``. JSON starts like a JSON value, an array of documents with ``[``, an envelope around one with
    ``{``. A flat file whose first record has a tag starts with this tag. Delimited text, other flat files and
    pass-through accept everything."""
    if isinstance(pipeline, FlatFile):
        tag = (pipeline.header or pipeline.record).tag
        text = head.decode(pipeline.encoding, "replace").lstrip("\ufeff\r\n")
        return tag is None or text.startswith(tag)
    for mark in _BYTE_ORDER_MARKS:
        head = head.removeprefix(mark)
    start = head.replace(b"\0", b"").lstrip()
    is_json = start[:1] in _JSON_STARTS if start else False
    is_json = is_json or start.startswith((b"true", b"false", b"null"))
    match pipeline:
        case Xml() | XmlReceive():
            return start.startswith(b"<")
        case Json():
            return is_json if pipeline.split is None else start.startswith(b"[" if pipeline.split == ROOT else b"{")
        case JsonLines():
            return is_json or not start  # an interchange without lines is valid
        case Csv() | PassThrough():
            return True
