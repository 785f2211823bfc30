"""A document that was a record of a flat file, read once more: the texts of its fields out of XML or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from postroom.errors import PipelineFailure
from postroom.message import Body
from postroom.pipelines.definitions import FlatDocument
from postroom.pipelines.documents.disassembled_batch import BatchSize, Disassembled, Rows, read_whole
from postroom.pipelines.flat.promotion import FlatPromotion
from postroom.pipelines.json.failure import UTF_8_MARK, malformed, refuse_utf_16
from postroom.pipelines.xml.promotion import message_type_of
from postroom.pipelines.xml.tree import read_tree

_HINT = "Correct the document: it has the form that the records of the flat file are written in."


def disassemble(pipeline: FlatDocument, body: Body, size: BatchSize) -> Iterator[Disassembled]:
    """One message. What was promoted from the header is not in it."""
    content = read_whole(body, "document")
    texts = _json_texts(pipeline, content) if pipeline.output == "json" else _xml_texts(pipeline, content)
    values = FlatPromotion(pipeline, ()).values([texts.get(name) for name in pipeline.record.names])
    rows = Rows(promotes=pipeline.promotes)
    rows.add(1, content, values, offset=0, message_type=pipeline.message_type)
    yield rows.finish()


def _xml_texts(pipeline: FlatDocument, content: bytes) -> Mapping[str, str | None]:
    root = read_tree(content)
    if (found := message_type_of(root)) != pipeline.message_type:
        raise PipelineFailure(
            f"The document is of the type {found!r}.",
            why=f"The records of this flat file become documents of the type {pipeline.message_type!r}.",
            hint=_HINT,
        )
    texts: dict[str, str | None] = {}
    for name in pipeline.record.names:
        elements = root.findall(name)
        if len(elements) > 1:
            raise _wrong(name, "It is there more than once.")
        if elements and len(elements[0]):
            raise _wrong(name, "There are elements in it.")
        texts[name] = (elements[0].text or "") if elements else None
    return texts


def _json_texts(pipeline: FlatDocument, content: bytes) -> Mapping[str, str | None]:
    refuse_utf_16(content)
    document = content.removeprefix(UTF_8_MARK)
    try:
        document.decode()
        found = _OBJECT.decode(document)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise malformed(document, error) from None
    return {name: _text(name, bytes(found[name])) for name in pipeline.record.names if name in found}


_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _text(name: str, token: bytes) -> str | None:
    """A number as it is written: its digits count."""
    match token[:1]:
        case b"n":
            return None
        case b'"':
            return msgspec.json.decode(token, type=str)
        case b"{" | b"[":
            raise _wrong(name, "It is neither a text, nor a number, nor true or false.")
    return token.decode()


def _wrong(name: str, why: str) -> PipelineFailure:
    return PipelineFailure(f"{name!r} is not a field as a record has it.", why=why, hint=_HINT)
