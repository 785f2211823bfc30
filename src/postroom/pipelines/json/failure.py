"""Why a document is not JSON, and where."""

from __future__ import annotations

import re

import msgspec

from postroom.errors import PipelineFailure

_HINT = "Correct the document and send it again."
_BYTE = re.compile(r" ?\(byte (\d+)\)")
_PLACE = re.compile(r" - at `\$\.?(.*)`$")
_HALF_OF_A_PAIR = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_WORDS_ABOUT_PAIRS = re.compile("truncated|hex escape|surrogate")

UTF_8_MARK = b"\xef\xbb\xbf"
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def malformed(document: bytes, error: Exception) -> PipelineFailure:
    """The failure for what a decoder raised that looks for objects and nothing else."""
    if isinstance(error, UnicodeDecodeError):
        return PipelineFailure(
            f"The document is not UTF-8 at {_place(document, error.start)}.",
            why=f"The byte 0x{document[error.start]:02x} does not belong there.",
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
        place = _PLACE.search(why)
        return PipelineFailure(
            f"{place.group(1)!r} is not an object." if place else "The document is not a JSON object.",
            why=f"{_PLACE.sub('', why)}: a promoted value is looked for in it.",
            hint="Correct the document and send it again, or promote the property from another place.",
        )
    half = _HALF_OF_A_PAIR.search(document)
    if half is not None and _WORDS_ABOUT_PAIRS.search(why):
        # A decoder that misses the other half says something else, or that the input ended.
        place_of_half, why = half.start(), f"{half.group().decode()} is one half of a surrogate pair."
        return PipelineFailure(
            f"The document is not valid JSON at {_place(document, place_of_half)}.", why=why, hint=_HINT
        )
    if (byte := _BYTE.search(why)) is not None:
        place_of_byte = int(byte.group(1))
        return PipelineFailure(
            f"The document is not valid JSON at {_place(document, place_of_byte)}.", why=_BYTE.sub("", why), hint=_HINT
        )
    return PipelineFailure(
        f"The document is not valid JSON: it ends early, at {_place(document, len(document))}.", why=why, hint=_HINT
    )


def refuse_utf_16(content: bytes) -> None:
    """JSON is exchanged in UTF-8 only; a mark of another encoding gives a better reason than the first bad byte."""
    if content.startswith(_UTF_16_MARKS):
        raise PipelineFailure(
            "The interchange is in UTF-16.",
            why="It starts with the byte order mark of UTF-16.",
            hint="Send it in UTF-8.",
        )


def _place(document: bytes, position: int) -> str:
    if b"\n" not in document:
        return f"byte {position + 1}"
    line = document.count(b"\n", 0, position) + 1
    start_of_line = document.rfind(b"\n", 0, position) + 1
    return f"line {line}, byte {position - start_of_line + 1}"
