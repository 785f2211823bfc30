"""What a pipeline raises becomes the refusal of its interchange, unless it is not about the interchange."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from postroom.agent.publish import Progress
from postroom.agent.receiving.interchange import Chunk, Interchange, read_all_chunks, read_chunks, unexpected_failure
from postroom.errors import BadValue, StorageFailure, Unavailable
from postroom.message import FRAGMENT_SIZE, Body, Bytes, Context
from postroom.pipelines import JsonLines, PassThrough
from postroom.pipelines.documents.disassembled_batch import Disassembled

LINES = b'{"n": 1}\n{"n": 2}\n'


class Stumbling:
    """Disassembles lines, and raises at the end of them."""

    def __init__(self, error: Exception, *, recoverable: bool) -> None:
        self.recoverable = recoverable
        self.bad_documents = None
        self._error = error

    def disassemble(self, body: Body, *, context: Context = Context(), **size: Any) -> Iterator[Disassembled]:  # noqa: B008
        yield from JsonLines().disassemble(body, context=context, **size)
        raise self._error


def chunks(error: Exception, *, recoverable: bool) -> list[Chunk]:
    interchange = Interchange(interchange_id=uuid.uuid4(), body=Bytes(LINES), context=Context())
    return list(read_chunks(Stumbling(error, recoverable=recoverable), interchange, Progress()))


@pytest.mark.parametrize("error", [ValueError("year 0 is out of range"), RecursionError("too deep"), LookupError()])
def test_an_unexpected_error_refuses_a_standard_interchange(error: Exception) -> None:
    (chunk,) = chunks(error, recoverable=False)
    assert chunk.refusal is not None
    assert chunk.is_last
    assert chunk.resumable
    assert (str(error) or type(error).__name__) in chunk.refusal.what
    # The type and the line are for whoever corrects the code.
    assert chunk.refusal.why.startswith(f"{type(error).__name__} at {__file__}:")


def test_what_stands_before_it_in_a_recoverable_one_is_published() -> None:
    first, rest = chunks(ValueError("unexpected"), recoverable=True)
    assert first.documents is not None
    assert first.documents["number"].to_pylist() == [1, 2]
    assert rest.refusal is not None
    assert "unexpected" in rest.refusal.what
    assert rest.is_last
    assert not rest.resumable, "it would publish the first two again"


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
        chunks(error, recoverable=recoverable)


def test_the_bytes_of_bodies_by_reference_count() -> None:
    """LRG-07: files of a gigabyte are not put into one transaction because each is a few bytes in its table."""
    large = Interchange(interchange_id=uuid.uuid4(), body=Bytes(b"x" * (FRAGMENT_SIZE * 9)), context=Context())
    (chunk,) = read_chunks(PassThrough(), large, Progress())
    assert chunk.bytes > FRAGMENT_SIZE * 9
    (small,) = read_chunks(PassThrough(), replace(large, body=Bytes(b"x" * 10)), Progress())
    assert 10 < small.bytes < 1_000


def test_a_standard_interchange_that_memory_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom.agent.receiving.interchange.MAX_STANDARD_BYTES", 1_000)
    lines = b'{"n": 1}\n' * 1_000
    interchange = Interchange(interchange_id=uuid.uuid4(), body=Bytes(lines), context=Context())
    (chunk,) = read_chunks(JsonLines(recoverable=False), interchange, Progress())
    assert chunk.refusal is not None
    assert "more than 1,000 bytes together" in chunk.refusal.what
    assert "recoverable" in chunk.refusal.hint
    (whole,) = read_chunks(JsonLines(recoverable=True), interchange, Progress())
    assert whole.rows == 1_000


def of_lines(body: bytes, progress: Progress | None = None, *, bad_documents: int | None = 3) -> list[Chunk]:
    interchange = Interchange(interchange_id=uuid.uuid4(), body=Bytes(body), context=Context())
    return list(read_chunks(JsonLines(bad_documents=bad_documents), interchange, progress or Progress()))


GOOD, BAD = b'{"n": 1}\n', b"x\n"


def test_bad_documents_up_to_the_limit_are_suspended_alone() -> None:
    (chunk,) = of_lines(GOOD + BAD * 3 + GOOD)
    assert chunk.refusal is None
    assert (chunk.rows, len(chunk.failures), chunk.bad) == (2, 3, 3)


def test_an_interchange_with_more_is_refused_as_one_and_says_how_many_they_are() -> None:
    (chunk,) = of_lines(GOOD + BAD * 2 + GOOD + BAD * 40)
    assert chunk.refusal is not None
    assert chunk.refusal.what == "4 of the first 6 documents are bad, and bad_documents allows 3."
    assert chunk.refusal.why.startswith("Nothing of it was published. The first bad one there: Line 2")
    assert "raise bad_documents, and resume it" in chunk.refusal.hint
    assert chunk.is_last
    assert chunk.resumable
    assert not chunk.failures
    assert chunk.rows == 0


@pytest.mark.parametrize("limit", [None, 42])
def test_who_wants_to_have_them_all_alone_raises_the_limit(limit: int | None) -> None:
    (chunk,) = of_lines(GOOD + BAD * 42, bad_documents=limit)
    assert (chunk.rows, len(chunk.failures)) == (1, 42)


def test_with_no_bad_document_allowed_one_refuses_all() -> None:
    (chunk,) = of_lines(GOOD + BAD, bad_documents=0)
    assert chunk.refusal is not None
    assert chunk.refusal.what == "1 of the first 2 documents are bad, and bad_documents allows 0."
    (chunk,) = of_lines(GOOD * 2, bad_documents=0)
    assert chunk.rows == 2


def test_what_stands_in_earlier_chunks_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom.agent.receiving.interchange.CHUNK_ROWS", 4)
    first, second, rest = of_lines(GOOD * 3 + BAD + GOOD * 3 + BAD + GOOD + BAD * 2 + GOOD * 9)
    assert [(one.rows, one.bad, one.is_last) for one in (first, second)] == [(3, 1, False), (3, 1, False)]
    assert rest.refusal is not None
    assert rest.refusal.what == "4 of the first 11 documents are bad, and bad_documents allows 3."
    assert rest.refusal.why.startswith("What follows document 8 was not published.")
    assert (rest.number, rest.last_document, rest.is_last) == (2, 8, True)
    assert rest.resumable, "it goes on after document 8"


def test_the_count_goes_on_where_an_attempt_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever an attempt ends, the next one refuses the same documents for the same reason."""
    monkeypatch.setattr("postroom.agent.receiving.interchange.CHUNK_ROWS", 2)
    body = (GOOD + BAD) * 9
    whole = of_lines(body)
    assert [one.bad for one in whole] == [1, 1, 1, 0]
    bad = 0
    for done, following in pairwise(whole):
        bad += done.bad
        progress = Progress(next_chunk=done.number + 1, last_document=done.last_document, bad=bad)
        again = of_lines(body, progress)
        assert [one.number for one in again] == [one.number for one in whole[following.number :]]
        assert again[-1].refusal is not None
        assert whole[-1].refusal is not None
        assert again[-1].refusal.what == whole[-1].refusal.what


def test_a_limit_that_was_lowered_meanwhile_holds_for_the_bad_documents_that_follow() -> None:
    begun = Progress(next_chunk=1, last_document=9, bad=9)
    (chunk,) = of_lines(BAD * 9 + GOOD, begun)
    assert (chunk.rows, chunk.refusal) == (1, None)
    (chunk,) = of_lines(BAD * 9 + GOOD + BAD, begun)
    assert chunk.refusal is not None
    assert chunk.refusal.what == "10 of the first 11 documents are bad, and bad_documents allows 3."


def test_what_is_resumed_has_to_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom.agent.receiving.interchange.MAX_STANDARD_BYTES", 10_000)
    monkeypatch.setattr("postroom.agent.receiving.interchange.CHUNK_ROWS", 10)
    pipeline = JsonLines(bad_documents=None)

    def held(body: bytes) -> Chunk:
        interchange = Interchange(interchange_id=uuid.uuid4(), body=Bytes(body), context=Context())
        return read_all_chunks(pipeline, interchange)[-1]

    assert held(GOOD * 50).refusal is None
    for body in (GOOD * 1_000, BAD * 50):
        refusal = held(body).refusal
        assert refusal is not None
        assert "more than 10,000 bytes together" in refusal.what
        assert "send the file to its location again" in refusal.hint


@pytest.mark.parametrize("pipeline", [JsonLines(bad_documents=3), JsonLines(recoverable=False)])
def test_the_rest_of_an_interchange_goes_on_where_it_was_refused(pipeline: JsonLines) -> None:
    """Also if its pipeline is standard by now: the first ones came in, and must not come in again."""
    rest = Interchange(interchange_id=uuid.uuid4(), body=Bytes(GOOD * 9), context=Context(), after=6)
    (chunk,) = read_all_chunks(pipeline, rest)
    assert chunk.documents is not None
    assert chunk.documents["number"].to_pylist() == [7, 8, 9]
    (nothing,) = read_all_chunks(pipeline, replace(rest, body=Bytes(GOOD * 6)))
    assert nothing.refusal is not None
    assert "no document after the first 6" in nothing.refusal.what


def test_what_is_bad_in_the_rest_is_counted_from_there() -> None:
    rest = Interchange(interchange_id=uuid.uuid4(), body=Bytes(BAD * 6 + GOOD + BAD * 4), context=Context(), after=6)
    (chunk,) = read_all_chunks(JsonLines(bad_documents=3), rest)
    assert chunk.refusal is not None
    assert chunk.refusal.what == "4 of the documents 7 to 11 are bad, and bad_documents allows 3."
    assert chunk.refusal.why.startswith("What follows document 6 was not published.")
    (chunk,) = read_all_chunks(JsonLines(bad_documents=4), rest)
    assert (chunk.rows, chunk.bad) == (1, 4)


def test_a_failure_of_the_message_keeps_its_type_and_code() -> None:
    failure = StorageFailure("The MessageBox does not accept a value.")
    assert unexpected_failure(failure) is failure
    with pytest.raises(StorageFailure):
        chunks(failure, recoverable=False)


def test_an_error_of_the_caller_becomes_a_failure_of_the_pipeline() -> None:
    failure = unexpected_failure(BadValue("It is too long.", hint="Shorten it."))
    assert (failure.code, failure.what, failure.hint) == ("PIPELINE", "It is too long.", "Shorten it.")
