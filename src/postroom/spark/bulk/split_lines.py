"""The lines of a split as Spark's readers cut them, byte for byte.

Spark leaves that to Hadoop: a split begins with the first line that begins behind its start, since the one before has
read the line at its end to the end of that; only the first split begins with the first byte.
"""

from __future__ import annotations

import bz2
import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_BLOCK = 1 << 20
_ANY_LINE_END = re.compile(rb"\r\n|\r|\n")
_MARK = b"\xef\xbb\xbf"

#: What Hadoop takes for compressed, by the end of a file's name; and what opens it here.
_COMPRESSED = {".gz": gzip.open, ".bz2": bz2.open, ".deflate": None, ".snappy": None, ".lz4": None, ".zst": None}


def open_plain(path: Path) -> IO[bytes]:
    """The content of a file, decompressed as Spark does it. Raises OSError if that cannot be done here."""
    if path.suffix not in _COMPRESSED:
        return path.open("rb")
    opened = _COMPRESSED[path.suffix]
    if opened is None:
        raise OSError(f"{path.suffix} cannot be decompressed here")
    return opened(path, "rb")  # type: ignore[return-value]


def can_be_cut(path: Path) -> bool:
    """Whether the lines of a split can be found: its start is a position in the content, or the split is the file."""
    return path.suffix == ".gz" or path.suffix not in _COMPRESSED


def lines_of_split(path: Path, start: int, length: int, separator: bytes | None) -> Iterator[bytes]:
    """Without their ends. ``separator`` is one byte; None: whatever ends a line. Raises OSError, EOFError or
    zlib.error."""
    with open_plain(path) as stream:
        if path.suffix in _COMPRESSED:
            start, length = 0, 1 << 62  # it is one split, of which Spark tells the compressed length
        stream.seek(start)
        for position, line in _lines(stream, separator):
            if position > length:
                return
            if start == 0 and position == 0:
                yield line.removeprefix(_MARK)
            elif start == 0 or position > 0:
                yield line


def _lines(stream: IO[bytes], separator: bytes | None) -> Iterator[tuple[int, bytes]]:
    """Every line with where it begins."""
    line_end = _ANY_LINE_END if separator is None else re.compile(re.escape(separator))
    position, rest = 0, b""
    while block := stream.read(_BLOCK):
        rest += block
        begin = 0
        for found in line_end.finditer(rest):
            if found.end() == len(rest) and found[0] == b"\r" and separator is None:
                break  # the other half may be in the next block
            yield position + begin, rest[begin : found.start()]
            begin = found.end()
        position, rest = position + begin, rest[begin:]
    if rest:
        yield position, rest.removesuffix(b"\r") if separator is None else rest
