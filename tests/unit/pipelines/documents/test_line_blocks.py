from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import BadValue
from postroom.message import CHUNK_SIZE
from postroom.pipelines.documents.disassembled_batch import BatchSize
from postroom.pipelines.documents.line_blocks import read_line_blocks


@dataclass
class Pieces:
    """A body with the given chunks."""

    pieces: list[bytes]

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces))

    def chunks(self) -> Iterator[bytes]:
        yield from self.pieces


@given(
    st.lists(st.binary(max_size=12) | st.sampled_from([b"\n", b"\n\n", b"a\nb", b"ab\n"]), max_size=12),
    st.integers(1, 5),
    st.integers(1, 30),
)
def test_the_lines_do_not_depend_on_the_chunks(pieces: list[bytes], rows: int, size: int) -> None:
    content = b"".join(pieces)
    blocks = list(read_line_blocks(Pieces(pieces), BatchSize(rows=rows, bytes=size)))
    lines = [line for block in blocks for line in block.lines]
    assert lines == content.removesuffix(b"\n").split(b"\n") if content else not lines
    number = 1
    for block in blocks:
        assert 1 <= len(block.lines) <= rows
        assert block.first_line == number
        assert content[block.offset :].startswith(b"\n".join(block.lines))
        number += len(block.lines)
        # The buffered lines, the line that exceeds the size, and the rest of the piece with its end.
        assert sum(map(len, block.lines)) <= 2 * size + max(map(len, block.lines))


def test_the_time_for_short_lines_is_linear() -> None:
    """Compared with another way to read the same lines, so that a busy machine does not matter. The best of three."""

    def seconds(rows: int) -> float:
        began = time.thread_time()
        blocks = sum(1 for _ in read_line_blocks(Pieces([b"\n" * CHUNK_SIZE]), BatchSize(rows=rows, bytes=1 << 30)))
        assert blocks == CHUNK_SIZE // rows
        return time.thread_time() - began

    in_few, in_many = (min(seconds(rows) for _ in range(3)) for rows in (CHUNK_SIZE // 2, CHUNK_SIZE // 1024))
    assert in_many < 10 * in_few


def test_an_empty_batch_size_is_rejected() -> None:
    with pytest.raises(BadValue):
        BatchSize(rows=0, bytes=1)
    with pytest.raises(BadValue):
        BatchSize(rows=1, bytes=0)
