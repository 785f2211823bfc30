"""Read the lines of a split as Spark's readers do.

The rule is Hadoop's: a split starts with the first line that starts after the start of the split, because the split
before reads the line across its end completely. Only the first split starts with the first byte.
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
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

#: The suffixes that Hadoop treats as compressed, and the functions that open such files.
_COMPRESSED = {".gz": gzip.open, ".bz2": bz2.open, ".deflate": None, ".snappy": None, ".lz4": None, ".zst": None}


def open_decompressed(path: Path) -> IO[bytes]:
    """Open a file, decompressed as Spark does it. Raise OSError if Python cannot decompress it."""
    if path.suffix not in _COMPRESSED:
        return path.open("rb")
    open_function = _COMPRESSED[path.suffix]
    if open_function is None:
        raise OSError(f"{path.suffix} cannot be decompressed")
    return open_function(path, "rb")  # type: ignore[return-value]


def can_find_lines(path: Path) -> bool:
    """Return True if the lines of a split can be found: its start is a position in the content, or it is the file."""
    return path.suffix == ".gz" or path.suffix not in _COMPRESSED


def read_split_lines(path: Path, start: int, length: int, separator: bytes | None) -> Iterator[tuple[int, bytes]]:
    """Yield the lines without their ends, each with its index after the start of the split. ``separator`` is one byte,
    or None for every kind of line end. Raise OSError, EOFError or zlib.error."""
    with open_decompressed(path) as stream:
        if path.suffix in _COMPRESSED:
            start, length = 0, 1 << 62  # the file is one split, and Spark reports its compressed length
        stream.seek(start)
        for index, (position, line) in enumerate(_read_lines(stream, separator)):
            if position > length:
                return
            if start == 0 and position == 0:
                yield index, line.removeprefix(_BYTE_ORDER_MARK)
            elif start == 0 or position > 0:
                yield index, line


def count_line_ends(path: Path, start: int, end: int, separator: bytes | None) -> int:
    """Return the number of line ends between two positions. A carriage return at ``end`` - 1 counts only if no line
    feed follows it."""
    count = 0
    with path.open("rb") as stream:
        stream.seek(start)
        while start < end and (block := stream.read(min(_BLOCK, end - start))):
            start += len(block)
            if separator is not None:
                count += block.count(separator)
                continue
            count += block.count(b"\n") + block.count(b"\r") - block.count(b"\r\n")
            if block.endswith(b"\r") and stream.read(1) == b"\n":
                count -= 1  # the line feed is counted with the next block
            stream.seek(start)
    return count


def _read_lines(stream: IO[bytes], separator: bytes | None) -> Iterator[tuple[int, bytes]]:
    """Yield each line with its position."""
    line_end = _ANY_LINE_END if separator is None else re.compile(re.escape(separator))
    position, rest = 0, b""
    while block := stream.read(_BLOCK):
        rest += block
        start_of_line = 0
        for found in line_end.finditer(rest):
            if found.end() == len(rest) and found[0] == b"\r" and separator is None:
                break  # the line feed may be in the next block
            yield position + start_of_line, rest[start_of_line : found.start()]
            start_of_line = found.end()
        position, rest = position + start_of_line, rest[start_of_line:]
    if rest:
        yield position, rest.removesuffix(b"\r") if separator is None else rest
