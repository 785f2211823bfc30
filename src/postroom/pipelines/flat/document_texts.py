"""Reads the texts of the fields of a document: of XML with an element per field, or of a JSON object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from lxml import etree

from postroom.errors import PipelineFailure
from postroom.pipelines.json.failure import UTF_8_MARK, UTF_16_MARKS, malformed_failure, utf_16_failure
from postroom.pipelines.xml.tree import read_tree

_HINT = "Correct the document. It must have the form of the documents of a flat file."

#: The texts by field. None is a null, and an absent field has no entry.
FieldTexts = Mapping[str, str | None]

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_OBJECTS = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


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
    members = read_json_object(content)
    found = []
    for line, line_names in lines.items():
        for each in _read_list(line, members.get(line)):
            found.append((line, {name: to_text(name, bytes(each[name])) for name in line_names if name in each}))
    return DocumentTexts(fields=read_json_texts(members, names), lines=found)


def read_rows(content: bytes, names: Sequence[str]) -> list[FieldTexts]:
    """Read the rows of a table: of an XML document or a JSON object one, of a JSON array of objects one for each."""
    document = content.removeprefix(UTF_8_MARK)
    if document.lstrip()[:1] != b"[":
        return [read_document(content, names, {}).fields]
    try:
        document.decode()
        rows = _OBJECTS.decode(document)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise malformed_failure(document, error) from None
    return [read_json_texts(row, names) for row in rows]


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


def read_json_object(content: bytes) -> Mapping[str, msgspec.Raw]:
    """Return the members of a JSON object."""
    if content.startswith(UTF_16_MARKS):
        raise utf_16_failure()
    document = content.removeprefix(UTF_8_MARK)
    try:
        document.decode()
        return _OBJECT.decode(document)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise malformed_failure(document, error) from None


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
