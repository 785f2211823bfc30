"""The documents of an interchange that is a JSON array, or has one at a path (RCV-10).

msgspec reads the whole interchange, and so checks it, and cuts the elements out of it as they were sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from json import JSONDecoder
from typing import Any

import msgspec

from postroom.errors import PipelineFailure
from postroom.message import FRAGMENT_SIZE
from postroom.pipelines.definitions import Json
from postroom.pipelines.documents.disassembled_batch import BatchSize, Disassembled, in_document
from postroom.pipelines.json.batch import read_documents
from postroom.pipelines.json.failure import UTF_8_MARK, malformed
from postroom.pipelines.json.path import keys_of_split

#: With more commas than this the elements are looked for one by one, several times slower: cut out all at once, each
#: takes up 60 bytes or more, however short it is.
MAX_AT_ONCE = 2_000_000

_KINDS = {b"{": "an object", b"[": "an array", b'"': "a text", b"t": "true", b"f": "false", b"n": "null"}
_HINT = "Send an interchange of the expected form, or correct the pipeline's split."


def split_documents(pipeline: Json, split: str, content: bytes, size: BatchSize) -> Iterator[Disassembled]:
    """One message for each element of the array; of an empty one none."""
    bodies: list[bytes] = []
    offsets: list[int] = []
    first_number, held, searched = 1, 0, 0

    def batch() -> Disassembled:
        return read_documents(
            pipeline,
            first_number=first_number,
            bodies=bodies,
            offsets=offsets,
            named=lambda position, failure: in_document(first_number + position, failure),
        )

    for body in _elements(_array(split, content)):
        offset = 0
        if len(body) > FRAGMENT_SIZE:
            # The same bytes before its own place would do as well.
            offset = content.index(body, searched)
            searched = offset + len(body)
        bodies.append(body)
        offsets.append(offset)
        held += len(body)
        if len(bodies) >= size.rows or held >= size.bytes:
            yield batch()
            first_number += len(bodies)
            bodies, offsets, held = [], [], 0
    if bodies:
        yield batch()


def _array(split: str, content: bytes) -> bytes:
    """What stands at the path, which is an array."""
    document = content.removeprefix(UTF_8_MARK)
    way = "It"
    try:
        found = _RAW.decode(document)
        for key in keys_of_split(split):
            if (kind := _kind(found)) != "an object":
                raise _unlike(split, f"{way} is {kind}, not an object.")
            found, way = _member(key).decode(found).value, repr(key)
            if not len(memoryview(found)):
                raise _unlike(split, f"There is no {way} in it.")
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise malformed(document, error) from None
    if (kind := _kind(found)) != "an array":
        raise _unlike(split, f"{way} is {kind}, not an array.")
    array = bytes(found)
    _check_around(document, array)
    return array


_RAW = msgspec.json.Decoder(msgspec.Raw)


@lru_cache(maxsize=256)
def _member(key: str) -> msgspec.json.Decoder[Any]:
    """Reads one member of an object as its bytes, of which there are none where there is no such member."""
    value = ("value", msgspec.Raw, msgspec.field(name=key, default=msgspec.Raw(b"")))
    return msgspec.json.Decoder(msgspec.defstruct("Envelope", [value]))


def _kind(value: msgspec.Raw) -> str:
    start = bytes(memoryview(value)[:1])
    return _KINDS.get(start, "a number")


def _check_around(document: bytes, array: bytes) -> None:
    """That the envelope is UTF-8: msgspec does not look. The elements are looked at one by one."""
    if document.isascii():
        return
    start = document.index(array)
    for first, end in ((0, start), (start + len(array), len(document))):
        try:
            document[first:end].decode()
        except UnicodeDecodeError as error:
            raise malformed(
                document,
                UnicodeDecodeError(error.encoding, document, first + error.start, first + error.end, error.reason),
            ) from None


def _elements(array: bytes) -> Iterator[bytes]:
    if array.count(b",") <= MAX_AT_ONCE:
        return map(bytes, msgspec.json.decode(array, type=list[msgspec.Raw]))
    return _one_by_one(array)


def _one_by_one(array: bytes) -> Iterator[bytes]:
    """The same, with Python's own reader, which can begin anywhere. It is given a character for each byte, so that
    its positions are those of bytes; what it makes of them is let go at once."""
    text = array.decode("latin-1")
    reader = JSONDecoder(strict=False, object_pairs_hook=len, parse_float=len, parse_int=len)
    position = _next(text, 1)
    while text[position] != "]":
        _, end = reader.raw_decode(text, position)
        yield array[position:end]
        position = _next(text, end)


def _next(text: str, position: int) -> int:
    while text[position] in " \t\r\n,":
        position += 1
    return position


def _unlike(split: str, why: str) -> PipelineFailure:
    return PipelineFailure(f"The interchange cannot be split at {split!r}.", why=why, hint=_HINT)
