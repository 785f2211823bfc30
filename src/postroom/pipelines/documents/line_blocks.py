"""Reads the lines of an interchange in blocks of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from postroom.message import CHUNK_SIZE, Body
from postroom.pipelines.documents.disassembled_batch import MAX_DOCUMENT_SIZE, BatchSize, oversize_failure


@dataclass(frozen=True, slots=True, kw_only=True)
class LineBlock:
    """Consecutive lines, each without its line feed. A CR before the line feed is kept."""

    first_line: int
    offset: int
    lines: list[bytes]


def read_line_blocks(body: Body, size: BatchSize, *, end: bytes = b"\n") -> Iterator[LineBlock]:
    """Yield the lines of ``body`` in blocks that end at ``size.rows`` lines, or soon after ``size.bytes``.

    Every line ends with the byte ``end``. The last line may lack it; it is a line only if it is not empty."""
    first_line, offset = 1, 0
    lines: list[bytes] = []
    buffered = 0
    unfinished: list[bytes] = []
    unfinished_size = 0
    for piece in _pieces(body, min(CHUNK_SIZE, size.bytes)):
        *complete, rest = piece.split(end)
        if complete:
            complete[0] = b"".join((*unfinished, complete[0]))
            buffered += unfinished_size + len(piece) - len(rest)
            unfinished, unfinished_size = [], 0
            lines += complete
        if rest:
            unfinished.append(rest)
            unfinished_size += len(rest)
            if unfinished_size > MAX_DOCUMENT_SIZE:
                raise oversize_failure(f"Line {first_line + len(lines)} has {unfinished_size:,} bytes or more", "line")
        taken = 0
        while len(lines) - taken >= size.rows or buffered >= size.bytes:
            block = LineBlock(first_line=first_line, offset=offset, lines=lines[taken : taken + size.rows])
            yield block
            taken += len(block.lines)
            length = sum(map(len, block.lines)) + len(block.lines)
            first_line += len(block.lines)
            offset += length
            buffered -= length
        # Once for all blocks of a piece, because a piece may have a million lines.
        del lines[:taken]
    if unfinished:
        lines.append(b"".join(unfinished))
    if lines:
        yield LineBlock(first_line=first_line, offset=offset, lines=lines)


def _pieces(body: Body, size: int) -> Iterator[bytes]:
    """Yield the chunks of ``body``, divided so that none exceeds ``size``. A body in memory is one chunk."""
    for chunk in body.chunks():
        if len(chunk) <= size:
            yield chunk
        else:
            for start in range(0, len(chunk), size):
                yield chunk[start : start + size]
