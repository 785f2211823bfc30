"""Reads the XML or JSON document of a flat file record when it is resumed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from postroom.errors import PipelineFailure
from postroom.message import Body
from postroom.pipelines.documents.disassembled_batch import BatchBuilder, BatchSize, DisassembledBatch, read_whole
from postroom.pipelines.flat.definition import FlatDocument
from postroom.pipelines.flat.record import FlatPromotion
from postroom.pipelines.json.failure import UTF_8_MARK, UTF_16_MARKS, malformed_failure, utf_16_failure
from postroom.pipelines.xml.promotion import get_message_type
from postroom.pipelines.xml.tree import read_tree

_HINT = "Correct the document. It must have the same form as the documents of the other records."


def disassemble(pipeline: FlatDocument, body: Body, size: BatchSize) -> Iterator[DisassembledBatch]:
    """Yield one message. The properties that are promoted from the header are not in it."""
    content = read_whole(body, "document")
    texts = _read_json_texts(pipeline, content) if pipeline.output == "json" else _read_xml_texts(pipeline, content)
    values = FlatPromotion(pipeline, ()).values([texts.get(name) for name in pipeline.record.names])
    builder = BatchBuilder(promotes=pipeline.promotes)
    builder.add(1, content, values, offset=0, message_type=pipeline.message_type)
    yield builder.build()


def _read_xml_texts(pipeline: FlatDocument, content: bytes) -> Mapping[str, str | None]:
    root = read_tree(content)
    if (found := get_message_type(root)) != pipeline.message_type:
        raise PipelineFailure(
            f"The document is of the type {found!r}.",
            why=f"The records of this flat file become documents of the type {pipeline.message_type!r}.",
            hint=_HINT,
        )
    texts: dict[str, str | None] = {}
    for name in pipeline.record.names:
        elements = root.findall(name)
        if len(elements) > 1:
            raise _field_failure(name, "It occurs more than once.")
        if elements and len(elements[0]):
            raise _field_failure(name, "It has child elements.")
        texts[name] = (elements[0].text or "") if elements else None
    return texts


def _read_json_texts(pipeline: FlatDocument, content: bytes) -> Mapping[str, str | None]:
    if content.startswith(UTF_16_MARKS):
        raise utf_16_failure()
    document = content.removeprefix(UTF_8_MARK)
    try:
        document.decode()
        found = _OBJECT.decode(document)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise malformed_failure(document, error) from None
    return {name: _token_to_text(name, bytes(found[name])) for name in pipeline.record.names if name in found}


_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _token_to_text(name: str, token: bytes) -> str | None:
    """Return the text of a JSON value. A number keeps its digits."""
    match token[:1]:
        case b"n":
            return None
        case b'"':
            return msgspec.json.decode(token, type=str)
        case b"{" | b"[":
            raise _field_failure(name, "It is neither a string, nor a number, nor true or false.")
    return token.decode()


def _field_failure(name: str, why: str) -> PipelineFailure:
    return PipelineFailure(f"{name!r} is not a valid field of the record.", why=why, hint=_HINT)
