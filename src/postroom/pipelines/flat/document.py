"""The document that a record of a flat file becomes: XML as BizTalk's disassembler writes it, or JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring
from xml.sax.saxutils import escape, quoteattr

from postroom.errors import PipelineFailure
from postroom.pipelines.flat.layout import Field
from postroom.values import ValueType

#: The texts of the fields of a record, and of each line that follows it, with its name.
Texts = Sequence[str | None]
Lines = Sequence[tuple[str, Texts]]
#: Writes a document of them.
Write = Callable[[Texts, Lines], bytes]

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SPECIAL = re.compile(f"[&<>\r]|{_NOT_XML.pattern}")
_QUOTED = (ValueType.STR, ValueType.DATETIME)


def xml_writer(message_type: str, fields: Sequence[Field], lines: Mapping[str, Sequence[Field]]) -> Write:
    """The root has the namespace, what is in it has none: the form of schemas that are not qualified."""
    namespace, _, root = message_type.rpartition("#")
    name = f"ns0:{root}" if namespace else root
    declared = f" xmlns:ns0={quoteattr(namespace)}" if namespace else ""
    start, end = f"<{name}{declared}>", f"</{name}>"
    own = _elements(fields)
    others = {line: _elements(of_line) for line, of_line in lines.items()}

    def write(texts: Texts, following: Lines) -> bytes:
        inner = own(texts)
        for line, more in following:
            inner += f"<{line}>{others[line](more)}</{line}>"
        return f"{start}{inner}{end}".encode()

    return write


def _elements(fields: Sequence[Field]) -> Callable[[Texts], str]:
    elements = [f"<{field.name}>%s</{field.name}>" for field in fields]
    whole = "".join(elements)

    def write(texts: Texts) -> str:
        if _SPECIAL.search("".join(filter(None, texts))) is not None:
            texts = [None if text is None else _escaped(text) for text in texts]
        if None not in texts:
            return whole % tuple(texts)
        return "".join(element % text for element, text in zip(elements, texts, strict=True) if text is not None)

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


def json_writer(fields: Sequence[Field], lines: Mapping[str, Sequence[Field]]) -> Write:
    """One object; numbers and flags as such, dates as text, null for an empty field that is no text. A list of objects
    for every kind of line."""
    own = _members(fields)
    others = {line: _members(of_line) for line, of_line in lines.items()}

    def write(texts: Texts, following: Lines) -> bytes:
        members = own(texts)
        for line, members_of in others.items():
            objects = ",".join(f"{{{members_of(more)}}}" for name, more in following if name == line)
            members += f",{encode_basestring(line)}:[{objects}]"
        return f"{{{members}}}".encode()

    return write


def _members(fields: Sequence[Field]) -> Callable[[Texts], str]:
    keys = [f"{encode_basestring(field.name)}:" for field in fields]
    is_quoted = [field.type in _QUOTED for field in fields]

    def write(texts: Texts) -> str:
        return ",".join(
            key + ("null" if text is None else encode_basestring(text) if quoted else text)
            for key, text, quoted in zip(keys, texts, is_quoted, strict=True)
        )

    return write
