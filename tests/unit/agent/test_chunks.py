"""What a pipeline raises becomes the refusal of its interchange, unless it is not about the interchange."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from postroom.agent.chunks import Chunk, Progress, chunks_of
from postroom.agent.interchange import Interchange
from postroom.errors import Unavailable
from postroom.message import FRAGMENT_SIZE, Body, Bytes, Context
from postroom.pipelines import JsonLines, PassThrough
from postroom.pipelines.disassembled import Disassembled

LINES = b'{"n": 1}\n{"n": 2}\n'


class Stumbling:
    """Disassembles lines, and raises at the end of them."""

    def __init__(self, error: Exception, *, recoverable: bool) -> None:
        self.recoverable = recoverable
        self._error = error

    def disassemble(self, body: Body, *, context: Context = Context(), **size: Any) -> Iterator[Disassembled]:  # noqa: B008
        yield from JsonLines().disassemble(body, context=context, **size)
        raise self._error


def chunks(error: Exception, *, recoverable: bool) -> list[Chunk]:
    interchange = Interchange(interchange_id=uuid.uuid4(), body=Bytes(LINES), context=Context())
    return list(chunks_of(Stumbling(error, recoverable=recoverable), interchange, Progress()))


@pytest.mark.parametrize("error", [ValueError("year 0 is out of range"), RecursionError("too deep"), LookupError()])
def test_what_nobody_has_foreseen_refuses_a_standard_interchange(error: Exception) -> None:
    (chunk,) = chunks(error, recoverable=False)
    assert chunk.refusal is not None
    assert chunk.is_last
    assert chunk.resumable
    assert (str(error) or type(error).__name__) in chunk.refusal.what
    # The type and the place are for whoever has to mend it.
    assert chunk.refusal.why.startswith(f"{type(error).__name__} at {__file__}:")


def test_what_stands_before_it_in_a_recoverable_one_is_published() -> None:
    first, rest = chunks(ValueError("unforeseen"), recoverable=True)
    assert first.documents is not None
    assert first.documents["number"].to_pylist() == [1, 2]
    assert rest.refusal is not None
    assert "unforeseen" in rest.refusal.what
    assert rest.is_last
    assert not rest.resumable, "it would publish the first two again"


@pytest.mark.parametrize("recoverable", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        psycopg.OperationalError("the server is gone"),
        Unavailable("The MessageBox is gone."),
        OSError(errno.ENOSPC, "No space left on device"),
        FileNotFoundError(errno.ENOENT, "No such file or directory"),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_not_about_the_interchange_is_raised(error: Exception, *, recoverable: bool) -> None:
    with pytest.raises(type(error)):
        chunks(error, recoverable=recoverable)


def test_the_bytes_of_bodies_by_reference_count() -> None:
    """LRG-07: files of a gigabyte are not put into one transaction because each is a few bytes in its table."""
    large = Interchange(interchange_id=uuid.uuid4(), body=Bytes(b"x" * (FRAGMENT_SIZE * 9)), context=Context())
    (chunk,) = chunks_of(PassThrough(), large, Progress())
    assert chunk.bytes > FRAGMENT_SIZE * 9
    (small,) = chunks_of(PassThrough(), replace(large, body=Bytes(b"x" * 10)), Progress())
    assert 10 < small.bytes < 1_000


def test_a_standard_interchange_that_memory_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom.agent.chunks.MAX_STANDARD_BYTES", 1_000)
    lines = b'{"n": 1}\n' * 1_000
    interchange = Interchange(interchange_id=uuid.uuid4(), body=Bytes(lines), context=Context())
    (chunk,) = chunks_of(JsonLines(recoverable=False), interchange, Progress())
    assert chunk.refusal is not None
    assert "more than 1,000 bytes together" in chunk.refusal.what
    assert "recoverable" in chunk.refusal.hint
    (whole,) = chunks_of(JsonLines(recoverable=True), interchange, Progress())
    assert whole.rows == 1_000
