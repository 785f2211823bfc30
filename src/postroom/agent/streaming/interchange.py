"""An interchange, and the chunks that it is published in.

A standard interchange is one chunk of any size: all of it is published, or nothing. A recoverable interchange may be
several chunks, each with its own receipt, so that a file of any size passes in bounded memory.

An unexpected error of the pipeline is a failure of the interchange: it would happen again at every attempt. The
interchange is suspended with its bytes, like any other that cannot be read. The failure says where the defect is, so
that it can be fixed and the interchange resumed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from postroom.agent.streaming.failure_limit import FailureCheck, FailureLimit
from postroom.errors import MessageFailure, PipelineFailure, PostroomError, is_environment_error
from postroom.message import Body, Context
from postroom.messagebox.storage.receipts import Progress, Receipt
from postroom.pipelines.components.stored_component import format_source_line
from postroom.pipelines.documents.disassembled_batch import BadDocument, DecodedInterchange, DisassembledBatch
from postroom.system_properties import ENGINE_PROPERTIES, ENGINE_PROPERTY_HINT, describe_engine_properties

if TYPE_CHECKING:
    from postroom.pipelines.receive.suspended_document import SuspendedDocument


#: A chunk, and a transaction, end at about this many documents or bytes.
CHUNK_ROWS = 10_000
CHUNK_BYTES = 16 << 20

#: Maximum size of all documents of a standard interchange. Publishing takes three times as much memory. Documents that
#: are larger than a fragment are passed by reference and do not count.
MAX_STANDARD_BYTES = 256 << 20

#: Documents below this size are not measured exactly.
_SMALL_BYTES = 1 << 16

#: Approximate size of a failure without the bytes of its document.
_FAILURE_BYTES = 2_000

#: Maximum length of the text of an unexpected error.
_MAX_ERROR_TEXT = 500

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Interchange:
    """One wire message: its bytes, and the context that the adapter writes. An adapter promotes nothing."""

    interchange_id: uuid.UUID
    body: Body
    context: Context = field(default_factory=Context)
    suspended_document: SuspendedDocument | None = None
    """The document, if this is not an interchange but a document that was suspended alone."""
    last_published: int = 0
    """The last document that was published before the rest of the interchange was rejected."""
    seed: uuid.UUID | None = None
    """The ids of its messages derive from this (default: ``interchange_id``). It is random for what a receive task
    receives, because a key may come again after its receipt was purged."""


class DisassemblingPipeline(Protocol):
    """A receive pipeline, with or without the maps of its port."""

    @property
    def recoverable(self) -> bool | None: ...

    @property
    def bad_documents(self) -> int | None: ...

    def disassemble(
        self, body: Body, *, context: Context = ..., batch_rows: int = ..., batch_bytes: int = ...
    ) -> Iterator[DisassembledBatch]: ...


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Documents of an interchange that share one receipt, or the rejection of the interchange."""

    interchange: Interchange
    number: int
    documents: pa.Table | None
    failures: tuple[BadDocument, ...] = ()
    bad: int = 0
    """The number of failures that count against the limit of the interchange."""
    decoded: DecodedInterchange | None = None
    rejection: MessageFailure | None = None
    resumable: bool = True
    recoverable: bool
    last_document: int
    is_last: bool
    dropped: int = 0
    """The number of documents without an authenticated originator that were dropped."""
    failure_limit: FailureCheck | None = None
    """The limit of failures that the interchange has, if it has one."""
    last_published: int = 0
    """The last document before this chunk."""

    @property
    def rows(self) -> int:
        return self.documents.num_rows if self.documents is not None else 0

    @property
    def context(self) -> Context:
        """The context of the interchange after its decode stage."""
        return self.interchange.context if self.decoded is None else self.decoded.context

    @property
    def source(self) -> Body:
        """The body that contains the documents that are passed by reference."""
        return self.interchange.body if self.decoded is None else self.decoded.body

    @property
    def is_empty_interchange(self) -> bool:
        """True if the interchange has no documents, neither good nor bad."""
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
        """The size of the bodies, including those that are passed by reference."""
        if self.documents is None:
            return self.interchange.body.size
        lengths = self.documents["length"]
        by_reference = 0 if lengths.null_count == len(lengths) else pc.sum(lengths).as_py()
        return _count_bytes(self.documents) + by_reference


def read_chunks(pipeline: DisassemblingPipeline, interchange: Interchange, progress: Progress) -> Iterator[Chunk]:
    """Yield the chunks of an interchange that are not published yet. Bad documents are in the chunks, not raised."""
    # An interchange that was started as a recoverable one continues as such.
    if pipeline.recoverable or progress.has_started:
        yield from _RecoverableReader(pipeline, interchange, progress).read()
    else:
        yield _read_standard(pipeline, interchange)


def read_all_chunks(pipeline: DisassemblingPipeline, interchange: Interchange) -> list[Chunk]:
    """Return all chunks of an interchange that is published in one transaction. The last one may have a rejection."""
    size = 0
    chunks: list[Chunk] = []
    for chunk in read_chunks(pipeline, interchange, Progress(last_document=interchange.last_published)):
        size += sum(len(bad.body) + _FAILURE_BYTES for bad in chunk.failures)
        size += 0 if chunk.documents is None else _count_bytes(chunk.documents)
        if size > MAX_STANDARD_BYTES:
            return [
                _reject_chunk(interchange, _too_large_failure(interchange), number=0, recoverable=chunk.recoverable)
            ]
        chunks.append(chunk)
    return chunks


def _too_large_failure(interchange: Interchange) -> PipelineFailure:
    again = f"what follows document {interchange.last_published:,} of it" if interchange.last_published else "the file"
    return PipelineFailure(
        f"The documents of the interchange have more than {MAX_STANDARD_BYTES:,} bytes together.",
        why="A resumed interchange is published as a whole, and buffered in memory until then.",
        hint=f"Save its message, send {again} to its location again, and terminate the instance.",
    )


def reject_rest(
    pipeline: DisassemblingPipeline, interchange: Interchange, failure: MessageFailure, progress: Progress
) -> Chunk:
    """Return a chunk that rejects the unpublished rest of an interchange, for a reason outside of its pipeline."""
    return _reject_chunk(
        interchange,
        failure,
        number=progress.next_chunk,
        recoverable=bool(pipeline.recoverable),
        resumable=progress.next_chunk == 0,
        last=progress.last_document,
    )


def reject_from(chunk: Chunk, failure: MessageFailure) -> Chunk:
    """Return a chunk that rejects a chunk of a recoverable interchange and what follows it."""
    return _reject_chunk(chunk.interchange, failure, number=chunk.number, recoverable=True, last=chunk.last_published)


def _read_standard(pipeline: DisassemblingPipeline, interchange: Interchange) -> Chunk:
    try:
        disassembled = pipeline.disassemble(interchange.body, context=interchange.context)
        batches = list(_limit_memory(_check_batches(interchange, disassembled)))
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
        # The disassembler numbers the documents. A document that a component consumed had a number too.
        last_document=tables["number"][-1].as_py() if tables is not None and tables.num_rows else 0,
        is_last=True,
    )


def _limit_memory(batches: Iterator[DisassembledBatch]) -> Iterator[DisassembledBatch]:
    """Yield the same batches. Raise PipelineFailure if together they exceed the limit."""
    size = 0
    for batch in batches:
        size += _count_bytes(batch.messages)
        if size > MAX_STANDARD_BYTES:
            raise PipelineFailure(
                f"The documents of the interchange have more than {MAX_STANDARD_BYTES:,} bytes together.",
                why="A standard interchange is published as a whole, and buffered in memory until then.",
                hint="Send it in parts, or make the pipeline recoverable. Then it is published in chunks.",
            )
        yield batch


class _RecoverableReader:
    """Reads the chunks of a recoverable interchange. A chunk is kept back until the next one is read, because the last
    one is marked."""

    def __init__(self, pipeline: DisassemblingPipeline, interchange: Interchange, progress: Progress) -> None:
        self._interchange = interchange
        self._progress = progress
        self._number, self._last, self._bad = progress.next_chunk, progress.last_document, progress.bad
        # Failures are counted from the start, or from the first document of a resumed rest.
        since = 0 if progress.next_chunk else progress.last_document
        maximum = pipeline.bad_documents
        self._limit = None if maximum is None else FailureLimit(maximum=maximum, since=since)
        self._kept: tuple[pa.Table, tuple[BadDocument, ...], DecodedInterchange | None] | None = None
        self._batches = _check_batches(
            interchange,
            pipeline.disassemble(
                interchange.body, context=interchange.context, batch_rows=CHUNK_ROWS, batch_bytes=CHUNK_BYTES
            ),
        )

    def read(self) -> Iterator[Chunk]:
        while True:
            try:
                batch = next(self._batches, None)
            except PipelineFailure as failure:
                yield from self._release()
                # The documents before the failure are published. A resume from the start would publish them twice.
                yield self._reject(failure, resumable=self._number == 0 and self._last == 0)
                return
            if batch is None:
                yield self._build_last()
                return
            documents, failures = self._skip_published(batch)
            if not documents.num_rows and not failures:
                continue
            yield from self._release()
            limit = None if self._limit is None else replace(self._limit, before=self._bad)
            excess = None if limit is None else limit.check_bad_documents(failures, last=self._last)
            if excess is not None:
                yield self._reject(excess)
                return
            self._bad += len(failures)
            self._kept = (documents, failures, batch.decoded)

    def _skip_published(self, batch: DisassembledBatch) -> tuple[pa.Table, tuple[BadDocument, ...]]:
        documents, published = pa.Table.from_batches([batch.messages]), self._progress.last_document
        if not published:
            return documents, batch.failures
        failures = tuple(failure for failure in batch.failures if failure.number > published)
        return documents.filter(pc.greater(documents["number"], published)), failures

    def _release(self) -> Iterator[Chunk]:
        """Yield the chunk that was kept back, if there is one."""
        if self._kept is not None:
            yield self._build(*self._kept, is_last=False)
            self._number += 1
            self._kept = None

    def _build_last(self) -> Chunk:
        if self._kept is None and self._progress.has_started:
            return self._reject(_missing_documents_failure(self._progress), resumable=False)
        return self._build(*(self._kept or (None, (), None)), is_last=True)

    def _build(
        self,
        documents: pa.Table | None,
        failures: tuple[BadDocument, ...],
        decoded: DecodedInterchange | None,
        *,
        is_last: bool,
    ) -> Chunk:
        last_published = self._last
        if documents is not None and documents.num_rows:
            self._last = max(self._last, documents["number"][-1].as_py())
        self._last = max([self._last, *(failure.number for failure in failures)])
        return Chunk(
            interchange=self._interchange,
            number=self._number,
            documents=documents,
            failures=failures,
            bad=len(failures),
            decoded=decoded,
            recoverable=True,
            last_document=self._last,
            is_last=is_last,
            failure_limit=None if self._limit is None else replace(self._limit, before=self._bad - len(failures)),
            last_published=last_published,
        )

    def _reject(self, failure: MessageFailure, *, resumable: bool = True) -> Chunk:
        return _reject_chunk(
            self._interchange, failure, number=self._number, recoverable=True, resumable=resumable, last=self._last
        )


def _missing_documents_failure(progress: Progress) -> PipelineFailure:
    """Return the failure of an interchange that has fewer documents than before. Its pipeline must have been changed,
    because only an interchange with more documents is published in several chunks."""
    return PipelineFailure(
        f"The pipeline finds no document after the first {progress.last_document:,}, but there were more.",
        why="These documents are published. The pipeline or the interchange has changed since then.",
        hint="Check which documents were published, and send the rest again.",
    )


def _count_bytes(documents: pa.Table | pa.RecordBatch) -> int:
    """Return the size of documents, or a little more. The exact size takes 20 µs, and most interchanges are small."""
    size = int(documents.get_total_buffer_size())
    return size if size < _SMALL_BYTES else int(documents.nbytes)


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


def _check_batches(interchange: Interchange, batches: Iterator[DisassembledBatch]) -> Iterator[DisassembledBatch]:
    """Yield the same batches. Raise PipelineFailure if the adapter or the pipeline fails, or promotes what only the
    engine may promote (PUB-13)."""
    check_promoted(interchange.context.promoted)
    for batch in translate_errors(batches):
        columns = batch.messages.schema.names
        if not ENGINE_PROPERTIES.isdisjoint(columns):
            check_promoted(key for key in columns if batch.messages[key].null_count < batch.messages.num_rows)
        yield batch


def check_promoted(promoted: Iterable[str]) -> None:
    """Raise PipelineFailure if one of these properties is promoted by the engine only."""
    if (what := describe_engine_properties(promoted)) is not None:
        raise PipelineFailure(what, hint=ENGINE_PROPERTY_HINT)


def translate_errors(batches: Iterator[_T]) -> Iterator[_T]:
    """Yield the same batches. Translate an error to a PipelineFailure, unless the environment caused it."""
    try:
        yield from batches
    except Exception as error:
        # After an OSError the file of the interchange cannot be read, and so cannot be suspended. Its task decides.
        if isinstance(error, MessageFailure | OSError) or is_environment_error(error):
            raise
        raise to_message_failure(error) from error


def to_message_failure(error: Exception) -> MessageFailure:
    """Return the failure of an interchange that an unexpected error has stopped."""
    if isinstance(error, MessageFailure):
        return error
    if isinstance(error, PostroomError):
        return PipelineFailure(error.what, why=error.why, hint=error.hint)
    text = str(error).strip().replace("\n", " ")
    return PipelineFailure(
        f"It could not be received: {text[:_MAX_ERROR_TEXT] or type(error).__name__}",
        why=f"{type(error).__name__}{format_source_line(error)}",
        hint="Send it in another form. If it is correct, report this as a bug, and resume it after an upgrade.",
    )
