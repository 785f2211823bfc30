"""An error of a pipeline rejects its interchange, unless the environment caused the error."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from postroom.agent.streaming.interchange import Chunk, Interchange, read_all_chunks, read_chunks, to_message_failure
from postroom.errors import BadValue, StorageFailure, Unavailable
from postroom.message import FRAGMENT_SIZE, Body, Bytes, Context
from postroom.messagebox.storage.receipts import Progress
from postroom.pipelines import JsonLines, PassThrough
from postroom.pipelines.documents.disassembled_batch import DisassembledBatch

LINES = b'{"n": 1}\n{"n": 2}\n'


class FailingPipeline:
    """A pipeline that disassembles lines and raises an error after the last."""

    def __init__(self, error: Exception, *, recoverable: bool) -> None:
        self.recoverable = recoverable
        self.bad_documents = None
        self._error = error

    def disassemble(self, body: Body, *, context: Context = Context(), **size: Any) -> Iterator[DisassembledBatch]:  # noqa: B008
        yield from JsonLines().disassemble(body, context=context, **size)
        raise self._error


def read_failing(error: Exception, *, recoverable: bool) -> list[Chunk]:
    interchange = Interchange(interchange_id=uuid.uuid4(), body=Bytes(LINES), context=Context())
    return list(read_chunks(FailingPipeline(error, recoverable=recoverable), interchange, Progress()))


@pytest.mark.parametrize("error", [ValueError("year 0 is out of range"), RecursionError("too deep"), LookupError()])
def test_an_unexpected_error_rejects_a_standard_interchange(error: Exception) -> None:
    (chunk,) = read_failing(error, recoverable=False)
    assert chunk.rejection is not None
    assert chunk.is_last
    assert chunk.resumable
    assert (str(error) or type(error).__name__) in chunk.rejection.what
    # The type and the line help to fix the code.
    assert chunk.rejection.why.startswith(f"{type(error).__name__} at {__file__}:")


def test_documents_before_an_unexpected_error_are_published_if_recoverable() -> None:
    first, rest = read_failing(ValueError("unexpected"), recoverable=True)
    assert first.documents is not None
    assert first.documents["number"].to_pylist() == [1, 2]
    assert rest.rejection is not None
    assert "unexpected" in rest.rejection.what
    assert rest.is_last
    assert not rest.resumable, "resuming would publish the first two documents again"


@pytest.mark.parametrize("recoverable", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        Unavailable("The MessageBox is gone."),
        OSError(errno.ENOSPC, "No space left on device"),
        FileNotFoundError(errno.ENOENT, "No such file or directory"),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_the_environment_is_raised(error: Exception, *, recoverable: bool) -> None:
    with pytest.raises(type(error)):
        read_failing(error, recoverable=recoverable)


def test_a_chunk_counts_the_bytes_of_bodies_by_reference() -> None:
    """LRG-07: large files are not put into one transaction, although their rows are small."""
    large = Interchange(interchange_id=uuid.uuid4(), body=Bytes(b"x" * (FRAGMENT_SIZE * 9)), context=Context())
    (chunk,) = read_chunks(PassThrough(), large, Progress())
    assert chunk.bytes > FRAGMENT_SIZE * 9
    (small,) = read_chunks(PassThrough(), replace(large, body=Bytes(b"x" * 10)), Progress())
    assert 10 < small.bytes < 1_000


def test_a_standard_interchange_that_does_not_fit_into_memory_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom.agent.streaming.interchange.MAX_STANDARD_BYTES", 1_000)
    lines = b'{"n": 1}\n' * 1_000
    interchange = Interchange(interchange_id=uuid.uuid4(), body=Bytes(lines), context=Context())
    (chunk,) = read_chunks(JsonLines(recoverable=False), interchange, Progress())
    assert chunk.rejection is not None
    assert "more than 1,000 bytes together" in chunk.rejection.what
    assert "recoverable" in chunk.rejection.hint
    (whole,) = read_chunks(JsonLines(recoverable=True), interchange, Progress())
    assert whole.rows == 1_000


def read_lines(body: bytes, progress: Progress | None = None, *, bad_documents: int | None = 3) -> list[Chunk]:
    interchange = Interchange(interchange_id=uuid.uuid4(), body=Bytes(body), context=Context())
    return list(read_chunks(JsonLines(bad_documents=bad_documents), interchange, progress or Progress()))


GOOD, BAD = b'{"n": 1}\n', b"x\n"


def test_bad_documents_up_to_the_limit_are_suspended_alone() -> None:
    (chunk,) = read_lines(GOOD + BAD * 3 + GOOD)
    assert chunk.rejection is None
    assert (chunk.rows, len(chunk.failures), chunk.bad) == (2, 3, 3)


def test_an_interchange_with_too_many_bad_documents_is_rejected_with_their_number() -> None:
    (chunk,) = read_lines(GOOD + BAD * 2 + GOOD + BAD * 40)
    assert chunk.rejection is not None
    assert chunk.rejection.what == "4 of the first 6 documents are bad, and bad_documents allows 3."
    assert chunk.rejection.why.startswith("Nothing of it was published. The first bad document: Line 2")
    assert "raise bad_documents, and resume it" in chunk.rejection.hint
    assert chunk.is_last
    assert chunk.resumable
    assert not chunk.failures
    assert chunk.rows == 0


@pytest.mark.parametrize("limit", [None, 42])
def test_a_higher_limit_suspends_all_bad_documents_alone(limit: int | None) -> None:
    (chunk,) = read_lines(GOOD + BAD * 42, bad_documents=limit)
    assert (chunk.rows, len(chunk.failures)) == (1, 42)


def test_a_limit_of_zero_rejects_an_interchange_with_one_bad_document() -> None:
    (chunk,) = read_lines(GOOD + BAD, bad_documents=0)
    assert chunk.rejection is not None
    assert chunk.rejection.what == "1 of the first 2 documents are bad, and bad_documents allows 0."
    (chunk,) = read_lines(GOOD * 2, bad_documents=0)
    assert chunk.rows == 2


def test_earlier_chunks_stay_published_when_the_rest_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom.agent.streaming.interchange.CHUNK_ROWS", 4)
    first, second, rest = read_lines(GOOD * 3 + BAD + GOOD * 3 + BAD + GOOD + BAD * 2 + GOOD * 9)
    assert [(one.rows, one.bad, one.is_last) for one in (first, second)] == [(3, 1, False), (3, 1, False)]
    assert rest.rejection is not None
    assert rest.rejection.what == "4 of the first 11 documents are bad, and bad_documents allows 3."
    assert rest.rejection.why.startswith("What follows document 8 was not published.")
    assert (rest.number, rest.last_document, rest.is_last) == (2, 8, True)
    assert rest.resumable, "resuming continues after document 8"


def test_a_repeated_attempt_rejects_the_same_documents_for_the_same_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom.agent.streaming.interchange.CHUNK_ROWS", 2)
    body = (GOOD + BAD) * 9
    whole = read_lines(body)
    assert [one.bad for one in whole] == [1, 1, 1, 0]
    bad = 0
    for done, following in pairwise(whole):
        bad += done.bad
        progress = Progress(next_chunk=done.number + 1, last_document=done.last_document, bad=bad)
        again = read_lines(body, progress)
        assert [one.number for one in again] == [one.number for one in whole[following.number :]]
        assert again[-1].rejection is not None
        assert whole[-1].rejection is not None
        assert again[-1].rejection.what == whole[-1].rejection.what


def test_a_lowered_limit_applies_to_the_next_bad_document() -> None:
    progress = Progress(next_chunk=1, last_document=9, bad=9)
    (chunk,) = read_lines(BAD * 9 + GOOD, progress)
    assert (chunk.rows, chunk.rejection) == (1, None)
    (chunk,) = read_lines(BAD * 9 + GOOD + BAD, progress)
    assert chunk.rejection is not None
    assert chunk.rejection.what == "10 of the first 11 documents are bad, and bad_documents allows 3."


def test_a_resumed_interchange_has_to_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom.agent.streaming.interchange.MAX_STANDARD_BYTES", 10_000)
    monkeypatch.setattr("postroom.agent.streaming.interchange.CHUNK_ROWS", 10)
    pipeline = JsonLines(bad_documents=None)

    def read_last(body: bytes) -> Chunk:
        interchange = Interchange(interchange_id=uuid.uuid4(), body=Bytes(body), context=Context())
        return read_all_chunks(pipeline, interchange)[-1]

    assert read_last(GOOD * 50).rejection is None
    for body in (GOOD * 1_000, BAD * 50):
        rejection = read_last(body).rejection
        assert rejection is not None
        assert "more than 10,000 bytes together" in rejection.what
        assert "send the file to its location again" in rejection.hint


@pytest.mark.parametrize("pipeline", [JsonLines(bad_documents=3), JsonLines(recoverable=False)])
def test_a_resumed_interchange_continues_after_its_published_documents(pipeline: JsonLines) -> None:
    """Also if its pipeline has become standard: published documents must not be published again."""
    rest = Interchange(interchange_id=uuid.uuid4(), body=Bytes(GOOD * 9), context=Context(), last_published=6)
    (chunk,) = read_all_chunks(pipeline, rest)
    assert chunk.documents is not None
    assert chunk.documents["number"].to_pylist() == [7, 8, 9]
    (nothing,) = read_all_chunks(pipeline, replace(rest, body=Bytes(GOOD * 6)))
    assert nothing.rejection is not None
    assert "no document after the first 6" in nothing.rejection.what


def test_bad_documents_of_a_resumed_interchange_are_counted_from_its_first_document() -> None:
    rest = Interchange(
        interchange_id=uuid.uuid4(), body=Bytes(BAD * 6 + GOOD + BAD * 4), context=Context(), last_published=6
    )
    (chunk,) = read_all_chunks(JsonLines(bad_documents=3), rest)
    assert chunk.rejection is not None
    assert chunk.rejection.what == "4 of the documents 7 to 11 are bad, and bad_documents allows 3."
    assert chunk.rejection.why.startswith("What follows document 6 was not published.")
    (chunk,) = read_all_chunks(JsonLines(bad_documents=4), rest)
    assert (chunk.rows, chunk.bad) == (1, 4)


def test_a_failure_of_the_message_keeps_its_type_and_code() -> None:
    failure = StorageFailure("The MessageBox does not accept a value.")
    assert to_message_failure(failure) is failure
    with pytest.raises(StorageFailure):
        read_failing(failure, recoverable=False)


def test_an_error_of_the_caller_becomes_a_failure_of_the_pipeline() -> None:
    failure = to_message_failure(BadValue("It is too long.", hint="Shorten it."))
    assert (failure.code, failure.what, failure.hint) == ("PIPELINE", "It is too long.", "Shorten it.")
