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
    """A body that comes in the chunks that a test wants."""

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
def test_however_it_is_cut_the_lines_are_the_same(pieces: list[bytes], rows: int, size: int) -> None:
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
        # What was held, then the line that goes over the size, then the rest of the piece that its end was read in.
        assert sum(map(len, block.lines)) <= 2 * size + max(map(len, block.lines))


def test_the_time_for_short_lines_goes_with_their_number() -> None:
    """In terms of another reading of the same lines, so that a busy machine does not matter; the least of three."""

    def seconds(rows: int) -> float:
        began = time.thread_time()
        blocks = sum(1 for _ in read_line_blocks(Pieces([b"\n" * CHUNK_SIZE]), BatchSize(rows=rows, bytes=1 << 30)))
        assert blocks == CHUNK_SIZE // rows
        return time.thread_time() - began

    in_few, in_many = (min(seconds(rows) for _ in range(3)) for rows in (CHUNK_SIZE // 2, CHUNK_SIZE // 1024))
    assert in_many < 10 * in_few


def test_a_batch_must_be_able_to_hold_something() -> None:
    with pytest.raises(BadValue):
        BatchSize(rows=0, bytes=1)
    with pytest.raises(BadValue):
        BatchSize(rows=1, bytes=0)
