"""The base classes of receive pipelines, as a user declares them and as the MessageBox stores them.

A definition is a frozen value. Its constructor accepts wrong settings. ``problems()`` lists them, so that the loader of
an application can report the problems of all definitions together. A definition with problems must not be run. Pydantic
rejects an argument of the wrong Python type at once.

A ``recoverable`` pipeline has a limit: if an interchange has more than ``bad_documents`` bad documents, the rest of it
is suspended as one message (None: no limit).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict

from postroom.errors import BadValue
from postroom.message import Body, Context
from postroom.pipelines.promotions import Promote, Promotions
from postroom.processes.time_limit import TimeLimit
from postroom.properties import Property
from postroom.system_properties import BTS
from postroom.values import Value

# pyarrow, msgspec and lxml are needed to run a pipeline, not to define one.
if TYPE_CHECKING:
    from postroom.pipelines.documents.disassembled_batch import BatchSize, DisassembledBatch

#: The default maximum number of bad documents in a recoverable interchange.
BAD_DOCUMENTS = 1_000
#: The time limit of a format for one batch. The time to read a batch grows with its size; the limit is for unexpected
#: content.
FORMAT_SECONDS = 300.0
#: Smaller bodies have no time limit. Reading a small document on another thread takes twice as long.
MIN_TIMED_SIZE = 1 << 16

_BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")

#: Reads an interchange. Failures of a document are in the batches. A failure of the whole interchange is raised.
Disassemble = Callable[[Body, "BatchSize"], Iterator["DisassembledBatch"]]


class Pipeline:
    """Reads interchanges: a definition, or what runs a definition and does something else before or after it."""

    def disassemble(
        self,
        body: Body,
        *,
        context: Context = Context(),  # noqa: B008 - immutable
        batch_rows: int = 10_000,
        batch_bytes: int = 16 << 20,
    ) -> Iterator[DisassembledBatch]:
        """Yield the messages of ``body`` in batches. A batch ends at ``batch_rows`` or soon after ``batch_bytes``.
        ``context`` is the context that the adapter wrote for the interchange.

        Raises PipelineFailure if the interchange fails as a whole. This can happen after some batches: nothing of a
        standard interchange may be published before the iterator has ended, and one bad document fails the whole
        interchange (RCV-12). A recoverable interchange may be published batch by batch. A failure after some batches,
        such as a line that is too long, is then a failure of the rest.
        """
        from postroom.pipelines.documents.disassembled_batch import BatchSize

        return self._run(body, context, BatchSize(rows=batch_rows, bytes=batch_bytes))

    @abstractmethod
    def _run(self, body: Body, context: Context, size: BatchSize) -> Iterator[DisassembledBatch]: ...


class Definition(Pipeline, BaseModel):
    """A receive pipeline."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: The media type of the message bodies.
    content_type: ClassVar[str]

    if TYPE_CHECKING:

        @property
        def recoverable(self) -> bool | None: ...

        @property
        def bad_documents(self) -> int | None: ...

    @property
    def call_seconds(self) -> float:
        """The time limit for one call of a component or one batch of a format."""
        return FORMAT_SECONDS

    @property
    def promotes(self) -> tuple[Property, ...]:
        """The properties that this pipeline may promote. Each is a column of its batches."""
        return ()

    def problems(self) -> list[str]:
        """Describe everything that is wrong with this definition. The list is empty if it can be run."""
        return []

    def _run(self, body: Body, context: Context, size: BatchSize) -> Iterator[DisassembledBatch]:
        batches = self._read_batches(body, context, size)
        return batches if self.recoverable else _raise_failures(batches)

    @abstractmethod
    def _read_batches(self, body: Body, context: Context, size: BatchSize) -> Iterator[DisassembledBatch]:
        """Yield the batches of an interchange. Failures of a document are in the batches."""

    @property
    def can_correct(self) -> bool:
        """True if a document that could not be read can be corrected and resumed."""
        return True

    def make_resumed_reader(self, *, received: bool) -> Definition | None:
        """Return what reads a document that was suspended alone, or None if nothing can read it again. ``received``: it
        could not be read before, and has the form of the interchange."""
        return self

    def select_external_values(self, body: bytes, values: Mapping[str, Value]) -> Mapping[str, Value]:
        """Return those promoted values of a document that reading the document alone would not give."""
        return {}


def _raise_failures(batches: Iterator[DisassembledBatch]) -> Iterator[DisassembledBatch]:
    for batch in batches:
        if batch.failures:
            raise batch.failures[0].failure
        yield batch


class Promoting(Definition):
    """A pipeline whose definition lists what it promotes, and from where."""

    promote: Promote = Promotions()

    @property
    def promotions(self) -> Promotions:
        assert isinstance(self.promote, Promotions)
        return self.promote

    @property
    def promotes(self) -> tuple[Property, ...]:
        return self.promotions.properties

    def problems(self) -> list[str]:
        return self.promotions.problems()


class Format(Definition):
    """A pipeline that is one disassembler. It can be used in the disassemble stage of ``Receive``, too."""

    is_harmless: ClassVar[bool] = False
    """True if no body of a few kilobytes can make the disassembler block or end its process."""

    @cached_property
    def disassembler(self) -> Disassemble:
        """The disassembler with the settings of this definition. It is loaded and compiled once."""
        return self._load_disassembler()

    @abstractmethod
    def _load_disassembler(self) -> Disassemble: ...

    def can_read(self, head: bytes) -> bool:
        """Return True if an interchange that starts with ``head`` looks like the format (RCV-03)."""
        return True

    def target_problems(self, target: str) -> list[str]:
        """Describe why it cannot read the one document of the type ``target`` that a map returns."""
        return []

    def get_document_type(self, interchange_type: str) -> str:
        """Return the media type of the documents of an interchange with this media type."""
        return self.content_type

    def _read_batches(self, body: Body, context: Context, size: BatchSize) -> Iterator[DisassembledBatch]:
        """Yield the batches of the disassembler. It has a time limit unless the body is small."""
        from postroom.pipelines.documents.disassembled_batch import DecodedInterchange

        if body.size < MIN_TIMED_SIZE:
            batches = self.disassembler(body, size)
        else:
            time_limit = TimeLimit(self.call_seconds)
            name = type(self).__name__
            batches = time_limit.iterate(lambda: time_limit.each(name, self.disassembler(body, size)))
        content_type = self.get_document_type(self.content_type)
        decoded = DecodedInterchange(body=body, context=context, content_type=content_type)
        is_same_type = content_type == self.content_type
        return (
            batch
            if is_same_type and batch.written is None
            else replace(batch, decoded=decoded.with_written(batch.written))
            for batch in batches
        )

    def __copy__(self) -> Self:
        # A copy may have other settings, which the disassembler does not have.
        copied = super().__copy__()
        copied.__dict__.pop("disassembler", None)
        return copied

    def __getstate__(self) -> dict[Any, Any]:
        # The disassembler cannot be pickled.
        return super(Format, copy(self)).__getstate__()


class PassThrough(Format):
    """Publishes the interchange unchanged as one message, without a message type. Its content is not read."""

    kind: Literal["pass-through"] = "pass-through"
    content_type: ClassVar[str] = "application/octet-stream"
    recoverable: ClassVar[bool] = False
    bad_documents: ClassVar[int | None] = BAD_DOCUMENTS
    is_harmless: ClassVar[bool] = True

    def get_document_type(self, interchange_type: str) -> str:
        return interchange_type

    def _load_disassembler(self) -> Disassemble:
        from postroom.pipelines.documents.disassembled_batch import pass_through

        return pass_through

    def _read_batches(self, body: Body, context: Context, size: BatchSize) -> Iterator[DisassembledBatch]:
        return self.disassembler(body, size)


def strip_byte_order_mark(head: bytes) -> bytes:
    """Return the start of an interchange without its byte order mark, zero bytes of UTF-16 and white space."""
    for mark in _BYTE_ORDER_MARKS:
        head = head.removeprefix(mark)
    return head.replace(b"\0", b"").lstrip()


def limit_problems(bad_documents: int | None) -> list[str]:
    """Describe what is wrong with a limit on bad documents. None means no limit."""
    if bad_documents is None or bad_documents >= 0:
        return []
    return [f"bad_documents is {bad_documents}, but must be 0 or more."]


def type_problems(message_type: str | None) -> list[str]:
    """Describe what is wrong with the message type of a definition."""
    if message_type is None:
        return []
    if not message_type:
        return ["The message type is empty; leave it out for messages without a type."]
    try:
        BTS.MessageType.check(message_type)
    except BadValue as error:
        return [error.what]
    return []
