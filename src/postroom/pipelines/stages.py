"""The stages of a receive pipeline, in their fixed order: decode, disassemble, validate, resolve party (RCV-02).

Decoding makes one body of one body and stands before disassembly; validation and party resolution take a batch and
give a batch and stand after it. Of the four only disassembly, with the promotion that belongs to it, has components
so far.
"""

from __future__ import annotations

from collections.abc import Iterator

from postroom.message import Body
from postroom.pipelines import csv_rows, json_document, json_lines, pass_through, xml_document, xml_receive
from postroom.pipelines.definitions import Csv, Json, JsonLines, PassThrough, ReceivePipeline, Xml, XmlReceive
from postroom.pipelines.disassembled import BatchSize, Disassembled


def receive(pipeline: ReceivePipeline, body: Body, size: BatchSize) -> Iterator[Disassembled]:
    """The interchange through every stage. In a standard pipeline one bad document fails the whole of it (RCV-12)."""
    for batch in disassemble(pipeline, body, size):
        if batch.failures and not pipeline.recoverable:
            raise batch.failures[0].failure
        yield batch


def disassemble(pipeline: ReceivePipeline, body: Body, size: BatchSize) -> Iterator[Disassembled]:
    """By the definition's own disassembler: it yields what fails a document and raises what fails the interchange."""
    match pipeline:
        case PassThrough():
            return pass_through.disassemble(body, size)
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
