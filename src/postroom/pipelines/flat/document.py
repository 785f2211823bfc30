"""Writes the document of a flat file record: XML as BizTalk's disassembler writes it, or JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring
from xml.sax.saxutils import escape, quoteattr

from postroom.errors import PipelineFailure
from postroom.pipelines.flat.layout import Field
from postroom.values import ValueType

#: The texts of the fields of a record, and the names and texts of the lines that follow it.
Texts = Sequence[str | None]
Lines = Sequence[tuple[str, Texts]]
#: Writes the document of a record.
Write = Callable[[Texts, Lines], bytes]

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SPECIAL = re.compile(f"[&<>\r]|{_NOT_XML.pattern}")
_QUOTED = (ValueType.STR, ValueType.DATETIME)


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
