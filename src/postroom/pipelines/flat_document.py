"""The document that a record of a flat file becomes: XML as BizTalk's disassembler writes it, or JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring
from xml.sax.saxutils import escape, quoteattr

from postroom.errors import PipelineFailure
from postroom.pipelines.flat_layout import Field
from postroom.values import ValueType

#: Writes a document of the texts of its fields.
Write = Callable[[Sequence[str | None]], bytes]

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SPECIAL = re.compile(f"[&<>\r]|{_NOT_XML.pattern}")
_QUOTED = (ValueType.STR, ValueType.DATETIME)


def xml_writer(message_type: str, fields: Sequence[Field]) -> Write:
    """The root has the namespace, the fields in it have none: the form of schemas that are not qualified."""
    namespace, _, root = message_type.rpartition("#")
    name = f"ns0:{root}" if namespace else root
    declared = f" xmlns:ns0={quoteattr(namespace)}" if namespace else ""
    start, end = f"<{name}{declared}>", f"</{name}>"
    elements = [f"<{field.name}>%s</{field.name}>" for field in fields]
    whole = f"{start.replace('%', '%%')}{''.join(elements)}{end}"

    def write(texts: Sequence[str | None]) -> bytes:
        if _SPECIAL.search("".join(filter(None, texts))) is not None:
            texts = [None if text is None else _escaped(text) for text in texts]
        if None not in texts:
            return (whole % tuple(texts)).encode()
        inner = [element % text for element, text in zip(elements, texts, strict=True) if text is not None]
        return f"{start}{''.join(inner)}{end}".encode()

    return write


def _escaped(text: str) -> str:
    if (found := _NOT_XML.search(text)) is not None:
        raise PipelineFailure(
            f"there is the character U+{ord(found[0]):04X} in the record.",
            why="XML has no way to write it.",
            hint='Send the record without it, or let the pipeline write JSON: output="json".',
        )
    # A reader of XML makes a line feed of a carriage return that stands for itself.
    return escape(text, {"\r": "&#13;"})


def json_writer(fields: Sequence[Field]) -> Write:
    """One object; numbers and flags as such, dates as text, null for an empty field that is no text."""
    keys = [f"{encode_basestring(field.name)}:" for field in fields]
    is_quoted = [field.type in _QUOTED for field in fields]

    def write(texts: Sequence[str | None]) -> bytes:
        values = [
            key + ("null" if text is None else encode_basestring(text) if quoted else text)
            for key, text, quoted in zip(keys, texts, is_quoted, strict=True)
        ]
        return f"{{{','.join(values)}}}".encode()

    return write
