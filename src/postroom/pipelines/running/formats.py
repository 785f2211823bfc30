"""The disassemblers that are pipelines of their own, and what each takes for its own kind of content."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from postroom.message import FRAGMENT_SIZE, Body
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
from postroom.pipelines.documents.disassembled_batch import BatchSize, Disassembled, schema_of
from postroom.pipelines.flat import csv_rows
from postroom.pipelines.flat import file as flat_file
from postroom.pipelines.flat import reread as flat_reread
from postroom.pipelines.json import disassembler as json_document
from postroom.pipelines.json import lines as json_lines
from postroom.pipelines.json.path import ROOT
from postroom.pipelines.xml import document as xml_document
from postroom.pipelines.xml import receive as xml_receive

_JSON = b'{["-0123456789'
_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")


def disassemble(pipeline: Format, body: Body, size: BatchSize) -> Iterator[Disassembled]:
    """By the definition's own disassembler: it yields what fails a document and raises what fails the interchange."""
    match pipeline:
        case PassThrough():
            return _pass_through(body)
        case Json():
            return json_document.disassemble(pipeline, body, size)
        case JsonLines():
            return json_lines.disassemble(pipeline, body, size)
        case Xml():
            return xml_document.disassemble(pipeline, body, size)
        case XmlReceive():
            return xml_receive.disassemble(pipeline, body, size)
        case Csv():
            return csv_rows.disassemble(pipeline, body, size)
        case FlatDocument():
            return flat_reread.disassemble(pipeline, body, size)
        case FlatFile():
            return flat_file.disassemble(pipeline, body, size)


def _pass_through(body: Body) -> Iterator[Disassembled]:
    """Yield the interchange as one message (TYP-02), also if it is empty. A large body is passed by reference."""
    by_reference = body.size > FRAGMENT_SIZE
    row = {
        "number": 1,
        "body": None if by_reference else b"".join(body.chunks()),
        "offset": 0 if by_reference else None,
        "length": body.size if by_reference else None,
        "message_type": None,
    }
    yield Disassembled(messages=pa.RecordBatch.from_pylist([row], schema=schema_of(())))


def document_type(pipeline: Format, original: str) -> str:
    """The media type of its documents, of an interchange of the type ``original``."""
    match pipeline:
        case PassThrough():
            return original
        case FlatFile():
            return pipeline.document_type
    return pipeline.content_type


def probe(pipeline: Format, head: bytes) -> bool:
    """Whether an interchange that begins like this looks like the format (RCV-03). XML begins with ``<``; JSON with
    what a JSON value can begin with, an array of documents with ``[``, an envelope around one with ``{``; a flat file
    whose first record has a tag, with that; delimited text, other flat files and pass-through take anything."""
    if isinstance(pipeline, FlatFile):
        tag = (pipeline.header or pipeline.record).tag
        text = head.decode(pipeline.encoding, "replace").lstrip("\ufeff\r\n")
        return tag is None or text.startswith(tag)
    for mark in _MARKS:
        head = head.removeprefix(mark)
    start = head.replace(b"\0", b"").lstrip()
    is_json = start[:1] in _JSON if start else False
    is_json = is_json or start.startswith((b"true", b"false", b"null"))
    match pipeline:
        case Xml() | XmlReceive():
            return start.startswith(b"<")
        case Json():
            return is_json if pipeline.split is None else start.startswith(b"[" if pipeline.split == ROOT else b"{")
        case JsonLines():
            return is_json or not start  # no lines at all are a list too
        case Csv() | PassThrough():
            return True
