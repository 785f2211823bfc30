"""The document of a flat file record, as XML or JSON: how it is written, and how its fields are read again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring
from xml.sax.saxutils import escape, quoteattr

import msgspec
from lxml import etree

from postroom.errors import PipelineFailure
from postroom.message import Body
from postroom.pipelines.documents.disassembled_batch import (
    BatchSize,
    DisassembledBatch,
    Document,
    build_batch,
    read_whole,
)
from postroom.pipelines.flat.definition import FlatDocument
from postroom.pipelines.flat.layout import Field
from postroom.pipelines.flat.record import FlatPromotion
from postroom.pipelines.json.failure import UTF_8_MARK, decode_document
from postroom.pipelines.xml.promotion import get_message_type
from postroom.pipelines.xml.tree import read_tree
from postroom.values import ValueType

#: The texts of the fields of a record, and the names and texts of the lines that follow it.
Texts = Sequence[str | None]
Lines = Sequence[tuple[str, Texts]]
#: Writes the document of a record.
Write = Callable[[Texts, Lines], bytes]

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SPECIAL = re.compile(f"[&<>\r]|{_NOT_XML.pattern}")
_QUOTED = (ValueType.STR, ValueType.DATETIME)
_HINT = "Correct the document. It must have the form of the documents of a flat file."

#: The texts by field. None is a null, and an absent field has no entry.
FieldTexts = Mapping[str, str | None]

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_OBJECTS = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


def make_xml_writer(message_type: str, fields: Sequence[Field], lines: Mapping[str, Sequence[Field]]) -> Write:
    """Return a writer of XML. The root has the namespace and the elements in it have none, as in unqualified
    schemas."""
    namespace, _, root = message_type.rpartition("#")
    name = f"ns0:{root}" if namespace else root
    declared = f" xmlns:ns0={quoteattr(namespace)}" if namespace else ""
    start, end = f"<{name}{declared}>", f"</{name}>"
    own = _make_elements_writer(fields)
    others = {line: _make_elements_writer(of_line) for line, of_line in lines.items()}

    def write(texts: Texts, following: Lines) -> bytes:
        inner = own(texts)
        for line, more in following:
            inner += f"<{line}>{others[line](more)}</{line}>"
        return f"{start}{inner}{end}".encode()

    return write


def _make_elements_writer(fields: Sequence[Field]) -> Callable[[Texts], str]:
    elements = [f"<{field.name}>%s</{field.name}>" for field in fields]
    whole = "".join(elements)

    def write(texts: Texts) -> str:
        if _SPECIAL.search("".join(filter(None, texts))) is not None:
            texts = [None if text is None else _escape(text) for text in texts]
        if None not in texts:
            return whole % tuple(texts)
        return "".join(element % text for element, text in zip(elements, texts, strict=True) if text is not None)

    return write


def _escape(text: str) -> str:
    if (found := _NOT_XML.search(text)) is not None:
        raise PipelineFailure(
            f"the record has the character U+{ord(found[0]):04X}.",
            why="XML cannot represent it.",
            hint='Send the record without it, or let the pipeline write JSON: output="json".',
        )
    # XML parsers convert a literal carriage return to a line feed.
    return escape(text, {"\r": "&#13;"})


def make_json_writer(fields: Sequence[Field], lines: Mapping[str, Sequence[Field]]) -> Write:
    """Return a writer of JSON: one object with numbers and booleans, dates as strings, null for an empty field that is
    not a str, and a list of objects for every kind of line."""
    own = _make_members_writer(fields)
    others = {line: _make_members_writer(of_line) for line, of_line in lines.items()}

    def write(texts: Texts, following: Lines) -> bytes:
        members = own(texts)
        for line, members_of in others.items():
            objects = ",".join(f"{{{members_of(more)}}}" for name, more in following if name == line)
            members += f",{encode_basestring(line)}:[{objects}]"
        return f"{{{members}}}".encode()

    return write


def _make_members_writer(fields: Sequence[Field]) -> Callable[[Texts], str]:
    keys = [f"{encode_basestring(field.name)}:" for field in fields]
    is_quoted = [field.type in _QUOTED for field in fields]

    def write(texts: Texts) -> str:
        return ",".join(
            key + ("null" if text is None else encode_basestring(text) if quoted else text)
            for key, text, quoted in zip(keys, texts, is_quoted, strict=True)
        )

    return write


@dataclass(frozen=True, kw_only=True)
class DocumentTexts:
    """The fields of a document, and the names and fields of its lines, in order."""

    fields: FieldTexts
    lines: Sequence[tuple[str, FieldTexts]] = ()


def read_document(content: bytes, names: Iterable[str], lines: Mapping[str, Sequence[str]]) -> DocumentTexts:
    """Read a document with these fields and lines. It is JSON if it starts with a brace, else XML."""
    if content.removeprefix(UTF_8_MARK).lstrip()[:1] != b"{":
        root = read_tree(content)
        found = [
            (str(child.tag), read_xml_texts(child, lines[str(child.tag)]))
            for child in root
            if isinstance(child.tag, str) and child.tag in lines
        ]
        return DocumentTexts(fields=read_xml_texts(root, names), lines=found)
    members = decode_document(content, _OBJECT.decode)
    found = []
    for line, line_names in lines.items():
        for each in _read_list(line, members.get(line)):
            found.append((line, {name: to_text(name, bytes(each[name])) for name in line_names if name in each}))
    return DocumentTexts(fields=read_json_texts(members, names), lines=found)


def read_rows(content: bytes, names: Sequence[str]) -> list[FieldTexts]:
    """Read the rows of a table: of an XML document or a JSON object one, of a JSON array of objects one for each."""
    if content.removeprefix(UTF_8_MARK).lstrip()[:1] != b"[":
        return [read_document(content, names, {}).fields]
    return [read_json_texts(row, names) for row in decode_document(content, _OBJECTS.decode)]


def read_xml_texts(parent: etree._Element, names: Iterable[str]) -> dict[str, str | None]:
    """Return the texts of the child elements with these names."""
    texts: dict[str, str | None] = {}
    for name in names:
        elements = parent.findall(name)
        if len(elements) > 1:
            raise _field_failure(name, "It occurs more than once.")
        if elements and len(elements[0]):
            raise _field_failure(name, "It has child elements.")
        if elements:
            texts[name] = elements[0].text or ""
    return texts


def read_json_texts(members: Mapping[str, msgspec.Raw], names: Iterable[str]) -> dict[str, str | None]:
    """Return the texts of the members with these names."""
    return {name: to_text(name, bytes(members[name])) for name in names if name in members}


def to_text(name: str, token: bytes) -> str | None:
    """Return the text of a JSON value. A number keeps its digits."""
    match token[:1]:
        case b"n":
            return None
        case b'"':
            return msgspec.json.decode(token, type=str)
        case b"{" | b"[":
            raise _field_failure(name, "It is neither a string, nor a number, nor true or false.")
    return token.decode()


def _read_list(line: str, raw: msgspec.Raw | None) -> list[dict[str, msgspec.Raw]]:
    if raw is None or bytes(raw) == b"null":
        return []
    try:
        return _OBJECTS.decode(raw)
    except msgspec.MsgspecError:
        raise _field_failure(line, "It is not a list of objects.") from None


def _field_failure(name: str, why: str) -> PipelineFailure:
    return PipelineFailure(f"{name!r} is not a valid field of the record.", why=why, hint=_HINT)


def disassemble(pipeline: FlatDocument, body: Body, size: BatchSize) -> Iterator[DisassembledBatch]:
    """Yield one message. The properties that are promoted from the header are not in it."""
    content = read_whole(body, "document")
    if pipeline.output == "json":
        texts: FieldTexts = read_json_texts(decode_document(content, _OBJECT.decode), pipeline.record.names)
    else:
        texts = _read_xml(pipeline, content)
    values = FlatPromotion(pipeline, ()).values([texts.get(name) for name in pipeline.record.names])
    yield build_batch(pipeline.promotes, Document(1, content, values, pipeline.message_type))


def _read_xml(pipeline: FlatDocument, content: bytes) -> FieldTexts:
    root = read_tree(content)
    if (found := get_message_type(root)) != pipeline.message_type:
        raise PipelineFailure(
            f"The document is of the type {found!r}.",
            why=f"The records of this flat file become documents of the type {pipeline.message_type!r}.",
            hint="Correct the document. It must have the same form as the documents of the other records.",
        )
    return read_xml_texts(root, pipeline.record.names)
