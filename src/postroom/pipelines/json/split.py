"""Splits an interchange that is a JSON array, or has one at a path, into its elements (RCV-10).

msgspec parses the whole interchange, which also checks it, and slices the elements out of it byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from json import JSONDecoder
from typing import Any

import msgspec

from postroom.errors import PipelineFailure
from postroom.pipelines.json.failure import UTF_8_MARK, malformed_failure
from postroom.pipelines.json.path import parse_split

#: An array with more commas than this is read element by element, which is several times slower. Read at once, each
#: element takes at least 60 bytes, however short it is.
MAX_COMMAS_AT_ONCE = 2_000_000

_KINDS = {b"{": "an object", b"[": "an array", b'"': "a string", b"t": "true", b"f": "false", b"n": "null"}
_HINT = "Send an interchange of the expected form, or correct the pipeline's split."


def read_elements(split: str, content: bytes) -> Iterator[bytes]:
    """Yield the elements of the array, byte for byte."""
    array = _find_array(split, content)
    if array.count(b",") <= MAX_COMMAS_AT_ONCE:
        return map(bytes, msgspec.json.decode(array, type=list[msgspec.Raw]))
    return _read_one_by_one(array)


def _find_array(split: str, content: bytes) -> bytes:
    """Return the array at the path."""
    document = content.removeprefix(UTF_8_MARK)
    name = "It"
    try:
        found = _RAW.decode(document)
        for key in parse_split(split):
            if (kind := _describe_kind(found)) != "an object":
                raise _split_failure(split, f"{name} is {kind}, not an object.")
            found, name = _member_decoder(key).decode(found).value, repr(key)
            if not len(memoryview(found)):
                raise _split_failure(split, f"There is no {name} in it.")
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise malformed_failure(document, error) from None
    if (kind := _describe_kind(found)) != "an array":
        raise _split_failure(split, f"{name} is {kind}, not an array.")
    array = bytes(found)
    _check_envelope_encoding(document, array)
    return array


_RAW = msgspec.json.Decoder(msgspec.Raw)


@lru_cache(maxsize=256)
def _member_decoder(key: str) -> msgspec.json.Decoder[Any]:
    """Return a decoder that reads one member of an object as bytes. They are empty if there is no such member."""
    value = ("value", msgspec.Raw, msgspec.field(name=key, default=msgspec.Raw(b"")))
    return msgspec.json.Decoder(msgspec.defstruct("Envelope", [value]))


def _describe_kind(value: msgspec.Raw) -> str:
    start = bytes(memoryview(value)[:1])
    return _KINDS.get(start, "a number")


def _check_envelope_encoding(document: bytes, array: bytes) -> None:
    """Raise PipelineFailure if the envelope is not UTF-8, which msgspec does not check. The elements are checked
    later."""
    if document.isascii():
        return
    start = document.index(array)
    for first, end in ((0, start), (start + len(array), len(document))):
        try:
            document[first:end].decode()
        except UnicodeDecodeError as error:
            raise malformed_failure(
                document,
                UnicodeDecodeError(error.encoding, document, first + error.start, first + error.end, error.reason),
            ) from None


def _read_one_by_one(array: bytes) -> Iterator[bytes]:
    """Yield the elements with Python's own decoder, which can start at any position. Latin-1 makes one character of
    each byte, so its positions are byte positions. The decoded values are not used."""
    text = array.decode("latin-1")
    reader = JSONDecoder(strict=False, object_pairs_hook=len, parse_float=len, parse_int=len)
    position = _skip_separators(text, 1)
    while text[position] != "]":
        _, end = reader.raw_decode(text, position)
        yield array[position:end]
        position = _skip_separators(text, end)


def _skip_separators(text: str, position: int) -> int:
    while text[position] in " \t\r\n,":
        position += 1
    return position


def _split_failure(split: str, why: str) -> PipelineFailure:
    return PipelineFailure(f"The interchange cannot be split at {split!r}.", why=why, hint=_HINT)
