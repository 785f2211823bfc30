"""Decodes JSON documents, and explains why one is not JSON, with the position of the error."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from postroom.errors import PipelineFailure

T = TypeVar("T")

_HINT = "Correct the document and send it again."
_BYTE = re.compile(r" ?\(byte (\d+)\)")
_PATH = re.compile(r" - at `\$\.?(.*)`$")
_LONE_SURROGATE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_SURROGATE_ERRORS = re.compile("truncated|hex escape|surrogate")

UTF_8_MARK = b"\xef\xbb\xbf"
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def decode_document(content: bytes, decode: Callable[[bytes], T]) -> T:
    """Return what ``decode`` makes of a document without its byte order mark. Raise PipelineFailure if it is not JSON
    in UTF-8."""
    if content.startswith(UTF_16_MARKS):
        raise utf_16_failure()
    document = content.removeprefix(UTF_8_MARK)
    try:
        document.decode()
        return decode(document)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise malformed_failure(document, error) from None


def malformed_failure(document: bytes, error: Exception) -> PipelineFailure:
    """Return the failure for what a decoder of objects raised."""
    if isinstance(error, UnicodeDecodeError):
        return PipelineFailure(
            f"The document is not UTF-8 at {_format_position(document, error.start)}.",
            why=f"The byte 0x{document[error.start]:02x} is not valid at this position.",
            hint="Send it in UTF-8.",
        )
    if isinstance(error, RecursionError):
        return PipelineFailure(
            "The document is nested too deeply.",
            why=str(error),
            hint="Send it with fewer levels of objects and arrays.",
        )
    why = str(error)
    if isinstance(error, msgspec.ValidationError):
        path = _PATH.search(why)
        return PipelineFailure(
            f"{path.group(1)!r} is not an object." if path else "The document is not a JSON object.",
            why=f"{_PATH.sub('', why)}, because the path of a promoted property leads through it.",
            hint="Correct the document and send it again, or promote the property from another path.",
        )
    surrogate = _LONE_SURROGATE.search(document)
    if surrogate is not None and _SURROGATE_ERRORS.search(why):
        # msgspec reports a lone surrogate as an invalid escape or as the end of the input.
        return PipelineFailure(
            f"The document is not valid JSON at {_format_position(document, surrogate.start())}.",
            why=f"{surrogate.group().decode()} is one half of a surrogate pair.",
            hint=_HINT,
        )
    if (byte := _BYTE.search(why)) is not None:
        return PipelineFailure(
            f"The document is not valid JSON at {_format_position(document, int(byte.group(1)))}.",
            why=f"{_BYTE.sub('', why)}.",
            hint=_HINT,
        )
    last_byte = max(len(document.rstrip()) - 1, 0)
    return PipelineFailure(
        f"The document is not valid JSON: it ends early, after {_format_position(document, last_byte)}.",
        why=f"{why}.",
        hint=_HINT,
    )


def utf_16_failure() -> PipelineFailure:
    """Return the failure for content that starts with one of UTF_16_MARKS. JSON is exchanged in UTF-8 only."""
    return PipelineFailure(
        "The interchange is in UTF-16.", why="It starts with the byte order mark of UTF-16.", hint="Send it in UTF-8."
    )


def _format_position(document: bytes, position: int) -> str:
    if b"\n" not in document:
        return f"byte {position + 1}"
    line = document.count(b"\n", 0, position) + 1
    start_of_line = document.rfind(b"\n", 0, position) + 1
    return f"line {line}, byte {position - start_of_line + 1}"
