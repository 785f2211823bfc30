"""Writes values into a JSON document. What is not written keeps its bytes, except for the space between values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from json.encoder import encode_basestring

import msgspec

from postroom.message import Context
from postroom.pipelines.demotions import demotion_failure, find_demoted, format_demoted
from postroom.pipelines.json.failure import decode_document
from postroom.pipelines.json.path import parse_path
from postroom.properties import Property
from postroom.values import Value, ValueType, type_of

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ANY = msgspec.json.Decoder(msgspec.Raw)
_QUOTED = (ValueType.STR, ValueType.DATETIME)


class NotAnObject(ValueError):
    """A key of a path is the value of something that is not an object."""


def read_json(content: bytes) -> bytes:
    """Return a JSON document without a byte order mark and surrounding space. Raise PipelineFailure if it is none."""
    return bytes(decode_document(content, _ANY.decode)).strip()


def demote_json(document: bytes, demotions: Mapping[Property, str], context: Context) -> bytes:
    """Return the document with the values of the properties that the message has. Missing objects are created."""
    for prop, path, value in find_demoted(demotions, context):
        try:
            document = set_value(document, parse_path(path) or (), format_json(value))
        except NotAnObject as error:
            raise demotion_failure(prop, path, f"{error} is not an object.") from None
    return document


def set_value(document: bytes, keys: Iterable[str], value: bytes) -> bytes:
    """Return the document with another value at a path. Raise NotAnObject if the path leads through a value."""
    return _set_value(document, [*keys], value, "the document")


def _set_value(document: bytes, keys: list[str], value: bytes, name: str) -> bytes:
    if not keys:
        return value
    first, *others = keys
    try:
        members = _OBJECT.decode(document)
    except (msgspec.MsgspecError, RecursionError):
        raise NotAnObject(name) from None
    inner = members.get(first)
    # A null is replaced like a missing object.
    existing = b"{}" if inner is None or bytes(inner) == b"null" else bytes(inner)
    members[first] = msgspec.Raw(_set_value(existing, others, value, repr(first)))
    return msgspec.json.encode(members)


def format_json(value: Value) -> bytes:
    """Return a value as JSON: numbers with their digits, dates as strings in UTC."""
    text = format_demoted(value)
    return encode_basestring(text).encode() if type_of(value) in _QUOTED else text.encode()
