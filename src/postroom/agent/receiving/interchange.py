"""An interchange, and the chunks that it is published in.

A standard interchange is one chunk of any size: all of it is published, or nothing. A recoverable interchange may be
several chunks, each with its own receipt, so that a file of any size passes in bounded memory.

An unexpected error of the pipeline is a failure of the interchange: it would happen again at every attempt. The
interchange is suspended with its bytes, like any other that cannot be read. The failure says where the defect is, so
that it can be fixed and the interchange resumed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from postroom.agent.publish import Progress, Receipt
from postroom.errors import MessageFailure, PipelineFailure, PostroomError, is_environment_error
from postroom.message import Body, Context
from postroom.pipelines.documents.disassembled_batch import BadDocument, DecodedInterchange, DisassembledBatch
from postroom.pipelines.running.component_calls import format_source_line

if TYPE_CHECKING:
    from postroom.pipelines.running.suspended_document import SuspendedDocument


#: A chunk, and a transaction, end at about this many documents or bytes.
CHUNK_ROWS = 10_000
CHUNK_BYTES = 16 << 20

#: The documents of a standard interchange together, at most; publishing takes three times that. Those that are larger
#: than a fragment go by reference, and do not count.
MAX_STANDARD_BYTES = 256 << 20

#: What a failure takes beside the bytes of its document, about.
_FAILURE_BYTES = 2_000

_SHOWN = 500

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Interchange:
    """One wire message: its bytes, and what the adapter writes about them (it promotes nothing)."""

    interchange_id: uuid.UUID
    body: Body
    context: Context = field(default_factory=Context)
    suspended_document: SuspendedDocument | None = None
    """It is a document that was suspended alone."""
    last_published: int = 0
    """It is the rest of an interchange: the documents up to this number came in before the others were refused."""


class Disassembles(Protocol):
    """A receive pipeline, with the maps of its port after it or without any."""

    @property
    def recoverable(self) -> bool | None: ...

    @property
    def bad_documents(self) -> int | None: ...

    def disassemble(
        self, body: Body, *, context: Context = ..., batch_rows: int = ..., batch_bytes: int = ...
    ) -> Iterator[DisassembledBatch]: ...


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """What one receipt stands for: some documents of an interchange, or its rejection as a whole."""

    interchange: Interchange
    number: int
    documents: pa.Table | None
    failures: tuple[BadDocument, ...] = ()
    bad: int = 0
    """How many of the failures the pipeline has found; those count against its limit."""
    decoded: DecodedInterchange | None = None
    rejection: MessageFailure | None = None
    resumable: bool = True
    recoverable: bool
    last_document: int
    is_last: bool
    dropped: int = 0
    """Documents that were left out without a trace but this number: they have no authenticated originator."""

    @property
    def rows(self) -> int:
        return self.documents.num_rows if self.documents is not None else 0

    @property
    def context(self) -> Context:
        """What is known of the interchange as a whole, after its decode stage."""
        return self.interchange.context if self.decoded is None else self.decoded.context

    @property
    def source(self) -> Body:
        """Where the bodies stand that went by reference."""
        return self.interchange.body if self.decoded is None else self.decoded.body

    @property
    def is_empty_interchange(self) -> bool:
        """Whether this is all of an interchange that has no documents, neither good nor bad."""
        return self.is_last and self.last_document == 0 and self.rejection is None

    @property
    def receipt(self) -> Receipt:
        outcome: dict[str, int | bool] = {"last": self.last_document, "done": self.is_last}
        if self.bad:
            outcome["bad"] = self.bad
        if self.dropped:
            outcome["dropped"] = self.dropped
        return Receipt(unit=self.interchange.interchange_id, chunk=self.number, outcome=outcome)

    @property
    def bytes(self) -> int:
        """Those of the bodies, also of those that went by reference."""
        if self.documents is None:
            return self.interchange.body.size
        return int(self.documents.nbytes) + (pc.sum(self.documents["length"]).as_py() or 0)


def read_chunks(pipeline: Disassembles, interchange: Interchange, progress: Progress) -> Iterator[Chunk]:
    """The chunks of an interchange that are still to be published. Bad messages are in the chunks; nothing is raised
    for them."""
    # What was has_started as a recoverable one goes on where it was left.
    if pipeline.recoverable or progress.has_started:
        yield from _read_recoverable(pipeline, interchange, progress)
    else:
        yield _read_standard(pipeline, interchange)


def read_all_chunks(pipeline: Disassembles, interchange: Interchange) -> list[Chunk]:
    """All of an interchange, to be published in one transaction, and held in memory until then. The last chunk says if
    it is refused."""
    held = 0
    chunks: list[Chunk] = []
    for chunk in read_chunks(pipeline, interchange, Progress(last_document=interchange.last_published)):
        held += sum(len(bad.body) + _FAILURE_BYTES for bad in chunk.failures)
        held += 0 if chunk.documents is None else chunk.documents.nbytes
        if held > MAX_STANDARD_BYTES:
            return [_reject_chunk(interchange, _too_large(interchange), number=0, recoverable=chunk.recoverable)]
        chunks.append(chunk)
    return chunks


def _too_large(interchange: Interchange) -> PipelineFailure:
    again = f"what follows document {interchange.last_published:,} of it" if interchange.last_published else "the file"
    return PipelineFailure(
        f"The documents of the interchange have more than {MAX_STANDARD_BYTES:,} bytes together.",
        why="What is resumed is published as a whole, and held in memory until all of it has passed.",
        hint=f"Save its message, send {again} to its location again, and terminate the instance.",
    )


def reject_rest(pipeline: Disassembles, interchange: Interchange, failure: MessageFailure, progress: Progress) -> Chunk:
    """Refuses all of an interchange that is not published yet, for a reason that its pipeline did not give."""
    return _reject_chunk(
        interchange,
        failure,
        number=progress.next_chunk,
        recoverable=bool(pipeline.recoverable),
        resumable=progress.next_chunk == 0,
        last=progress.last_document,
    )


def _read_standard(pipeline: Disassembles, interchange: Interchange) -> Chunk:
    try:
        batches = list(
            _limit_memory(translate_errors(pipeline.disassemble(interchange.body, context=interchange.context)))
        )
        failures = [failure for batch in batches for failure in batch.failures]
        if failures:
            raise failures[0].failure
    except PipelineFailure as failure:
        return _reject_chunk(interchange, failure, number=0, recoverable=False)
    tables = pa.Table.from_batches([batch.messages for batch in batches]) if batches else None
    return Chunk(
        interchange=interchange,
        number=0,
        documents=tables,
        decoded=batches[-1].decoded if batches else None,
        recoverable=False,
        # Numbers are given by the disassembler; a message that a component consumed had one too.
        last_document=tables["number"][-1].as_py() if tables is not None and tables.num_rows else 0,
        is_last=True,
    )


def _limit_memory(batches: Iterator[DisassembledBatch]) -> Iterator[DisassembledBatch]:
    """The same batches, as long as all of them fit into memory together."""
    held = 0
    for batch in batches:
        held += batch.messages.nbytes
        if held > MAX_STANDARD_BYTES:
            raise PipelineFailure(
                f"The documents of the interchange have more than {MAX_STANDARD_BYTES:,} bytes together.",
                why="A standard interchange is published as a whole, and held in memory until all of it has passed.",
                hint="Send it in parts, or make the pipeline recoverable: it is published piece by piece then.",
            )
        yield batch


def _read_recoverable(pipeline: Disassembles, interchange: Interchange, progress: Progress) -> Iterator[Chunk]:
    number, last, bad = progress.next_chunk, progress.last_document, progress.bad
    pending: tuple[pa.Table, tuple[BadDocument, ...], DecodedInterchange | None] | None = None
    batches = translate_errors(
        pipeline.disassemble(
            interchange.body, context=interchange.context, batch_rows=CHUNK_ROWS, batch_bytes=CHUNK_BYTES
        )
    )

    def chunk(
        documents: pa.Table | None,
        failures: tuple[BadDocument, ...],
        decoded: DecodedInterchange | None,
        *,
        is_last: bool,
    ) -> Chunk:
        nonlocal last
        if documents is not None and documents.num_rows:
            last = max(last, documents["number"][-1].as_py())
        last = max([last, *(failure.number for failure in failures)])
        return Chunk(
            interchange=interchange,
            number=number,
            documents=documents,
            failures=failures,
            bad=len(failures),
            decoded=decoded,
            recoverable=True,
            last_document=last,
            is_last=is_last,
        )

    while True:
        try:
            batch = next(batches, None)
        except PipelineFailure as failure:
            if pending is not None:
                yield chunk(*pending, is_last=False)
                number += 1
            # What stands before the failure is published; running it all again would publish that twice.
            resumable = number == 0 and last == 0
            yield _reject_chunk(interchange, failure, number=number, recoverable=True, resumable=resumable, last=last)
            return
        if batch is None and pending is None and progress.has_started:
            less = _nothing_left(progress)
            yield _reject_chunk(interchange, less, number=number, recoverable=True, resumable=False, last=last)
            return
        if batch is None:
            yield chunk(*(pending or (None, (), None)), is_last=True)
            return
        documents = pa.Table.from_batches([batch.messages])
        failures = batch.failures
        if progress.last_document:
            documents = documents.filter(pc.greater(documents["number"], progress.last_document))
            failures = tuple(failure for failure in failures if failure.number > progress.last_document)
        if not documents.num_rows and not failures:
            continue
        if pending is not None:
            yield chunk(*pending, is_last=False)
            number += 1
        # Bad ones are counted from the beginning, or from where those of an interchange that is resumed begin.
        since = 0 if progress.next_chunk else progress.last_document
        excess = _find_excess(failures, pipeline.bad_documents, before=bad, since=since, last=last)
        if excess is not None:
            yield _reject_chunk(interchange, excess, number=number, recoverable=True, last=last)
            return
        bad += len(failures)
        pending = (documents, failures, batch.decoded)


def _find_excess(
    failures: Sequence[BadDocument], limit: int | None, *, before: int, since: int, last: int
) -> PipelineFailure | None:
    """Why the chunk with these failures is not published, nor anything after it: a file of another format would become
    as many suspended instances as it has lines. ``before`` them there were so many bad ones after document ``since``;
    ``last`` is the last document that came in."""
    if not failures or limit is None or before + len(failures) <= limit:
        return None
    # More than the limit were there before if it was lowered meanwhile.
    count = max(limit, before) + 1
    number = failures[count - before - 1].number
    among = f"documents {since + 1:,} to {number:,}" if since else f"first {number:,} documents"
    kept = f"What follows document {last:,} was not published" if last else "Nothing of it was published"
    return PipelineFailure(
        f"{count:,} of the {among} are bad, and bad_documents allows {limit:,}.",
        why=f"{kept}. The first bad one there: {failures[0].failure.what}",
        hint="If it is of another format, terminate it. If not, fix it or raise bad_documents, and resume it.",
    )


def _nothing_left(progress: Progress) -> PipelineFailure:
    """Only what has more documents is published in several chunks; so its pipeline has been changed meanwhile."""
    return PipelineFailure(
        f"The pipeline finds no document after the first {progress.last_document:,}, but there were more.",
        why="Those are published. Then it or the interchange was changed, which is taken apart in another way now.",
        hint="See what of it was published, and send the rest again.",
    )


def _reject_chunk(
    interchange: Interchange,
    failure: MessageFailure,
    *,
    number: int,
    recoverable: bool,
    resumable: bool = True,
    last: int = 0,
) -> Chunk:
    return Chunk(
        interchange=interchange,
        number=number,
        documents=None,
        rejection=failure,
        resumable=resumable,
        recoverable=recoverable,
        last_document=last,
        is_last=True,
    )


def translate_errors(batches: Iterator[_T]) -> Iterator[_T]:
    """Yields the same batches. An error of theirs becomes a PipelineFailure, unless the environment caused it."""
    try:
        yield from batches
    except Exception as error:
        # An OSError is about the file of the interchange: its bytes cannot be suspended, so that its task decides.
        if isinstance(error, MessageFailure | OSError) or is_environment_error(error):
            raise
        raise to_message_failure(error) from error


def to_message_failure(error: Exception) -> MessageFailure:
    """The failure of an interchange that could not be received because of an unexpected error."""
    if isinstance(error, MessageFailure):
        return error
    if isinstance(error, PostroomError):
        return PipelineFailure(error.what, why=error.why, hint=error.hint)
    text = str(error).strip().replace("\n", " ")
    return PipelineFailure(
        f"It could not be received: {text[:_SHOWN] or type(error).__name__}",
        why=f"{type(error).__name__}{format_source_line(error)}",
        hint="Send it in another form, or resume it with a version of Postroom that can receive it.",
    )
