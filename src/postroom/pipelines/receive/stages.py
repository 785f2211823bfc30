"""Runs the stages of a receive pipeline with components: decode, disassemble, validate, resolve party (RCV-02).

The decode stage makes one message of one message. The disassemble stage makes batches of documents. The validate and
resolve party stages take a batch and return a batch. Every call of a component has a time limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

import pyarrow as pa

from postroom.errors import BadValue, PipelineFailure
from postroom.message import FRAGMENT_SIZE, MAX_PARTS, Body, Context, Message, Part
from postroom.pipelines.components.contract import CONSUMED, Decoder, Disassembler, PartyResolver, Suspend, Validator
from postroom.pipelines.components.stored_component import (
    component_failure,
    component_name,
    load_component,
    run_component,
)
from postroom.pipelines.definition import Format, PassThrough
from postroom.pipelines.documents.disassembled_batch import (
    MAX_DOCUMENT_SIZE,
    BadDocument,
    BatchSize,
    DecodedInterchange,
    DisassembledBatch,
    Document,
    add_document_number,
    arrow_schema,
    build_batches,
    oversize_failure,
    yield_after_all_pass,
)
from postroom.pipelines.documents.message_batch import MessageBatch
from postroom.pipelines.receive.definition import Receive
from postroom.processes.time_limit import TimedOut, TimeLimit
from postroom.properties import Property, dotted_name, split_key
from postroom.system_properties import BTS, ENGINE_PROPERTY_HINT, SUSPEND_QUEUE, describe_engine_properties
from postroom.temporary_bodies import Spool
from postroom.values import Value

#: The number of bytes of an interchange that the disassemblers are probed with.
_HEAD_SIZE = 4_096


def run_stages(pipeline: Receive, body: Body, context: Context, size: BatchSize) -> Iterator[DisassembledBatch]:
    """Yield the batches of an interchange after all stages of the pipeline."""
    time_limit = TimeLimit(pipeline.seconds)
    stages = ComponentStages(pipeline, time_limit)
    return time_limit.iterate(lambda: stages.run(Message(context=context, parts=(Part(body=body),)), size))


class ComponentStages:
    """One run of a pipeline over one interchange.

    ``skips_probe``: the first disassembler runs without being probed. ``complete`` is applied to every disassembled
    batch before the validate stage."""

    def __init__(
        self,
        pipeline: Receive,
        time_limit: TimeLimit,
        *,
        skips_probe: bool = False,
        complete: Callable[[DisassembledBatch], DisassembledBatch] | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._time_limit = time_limit
        self._skips_probe = skips_probe
        self._complete = complete
        self._components: dict[int, Any] = {}

    def run(self, interchange: Message, size: BatchSize) -> Iterator[DisassembledBatch]:
        """Yield each batch as soon as it is made. If one rejected message would fail a recoverable interchange (RCV-16,
        RCV-19), no batch is yielded before all have passed."""
        message = self._decode(interchange)
        if message is None:
            return
        disassembler = self._choose(message)
        if not self._pipeline.recoverable or not self._can_fail_interchange:
            yield from self._disassemble(disassembler, message, size)
            return
        yield from yield_after_all_pass(lambda: self._disassemble(disassembler, message, size))

    # -- decode ------------------------------------------------------------------------------------------------------

    def _decode(self, message: Message) -> Message | None:
        for name, component in self._load_components(self._pipeline.decoders):
            work = component.decode if isinstance(component, Decoder) else component
            result = self._call(name, work, message)
            if result is None:
                return None
            try:
                message = result if isinstance(result, Message) else message.with_body(result)
                if message.body is None:
                    raise ValueError("it returned a message without parts; a received message needs a body part")
                if len(message.parts) > MAX_PARTS:
                    raise ValueError(f"it returned {len(message.parts)} parts; the maximum is {MAX_PARTS}")
                if (what := describe_engine_properties(message.context.promoted)) is not None:
                    raise BadValue(what, hint=ENGINE_PROPERTY_HINT)
            except Exception as error:
                raise component_failure(name, error) from error
        # Properties are promoted from documents, and an interchange has many of them.
        return message.with_context(message.context.demote_all())

    # -- disassemble -------------------------------------------------------------------------------------------------

    def _choose(self, message: Message) -> tuple[int, str, Any]:
        """Return the first disassembler that accepts the interchange (RCV-03): its position, its name and the
        component."""
        if not self._pipeline.disassemblers:
            return 1, "PassThrough", PassThrough()
        if self._skips_probe:
            return 1, *next(self._load_components(self._pipeline.disassemblers))
        assert message.body is not None
        head = next(message.body.body.chunks(), b"")[:_HEAD_SIZE]
        for position, (name, component) in enumerate(self._load_components(self._pipeline.disassemblers), 1):
            if isinstance(component, Format):
                if component.can_read(head):
                    return position, name, component
            elif not isinstance(component, Disassembler) or self._call(name, component.probe, message):
                return position, name, component
        raise PipelineFailure(
            "No disassembler of the pipeline recognises the interchange.",
            why=f"It starts with {head[:40]!r}.",
            hint="Send it in a format of this location, or add a disassembler to the pipeline.",
        )

    def _disassemble(
        self, chosen: tuple[int, str, Any], message: Message, size: BatchSize
    ) -> Iterator[DisassembledBatch]:
        position, name, component = chosen
        assert message.body is not None
        body = message.body
        if isinstance(component, Format):
            document_type = component.get_document_type(body.content_type)
            decoded = DecodedInterchange.of(message, content_type=document_type, disassembler=position)
            batches: Iterator[DisassembledBatch] = (
                replace(batch, decoded=decoded.with_written(batch.written))
                for batch in component.disassembler(decoded.body, size)
            )
        else:
            batches = disassemble_messages(component, message, size, position=position)
        if self._complete is not None:
            batches = map(self._complete, batches)
        schema = arrow_schema(self._pipeline.promotes)
        while (batch := self._time_limit.call(name, lambda: next(batches, None))) is not None:
            batch, is_consumed = self._validate(replace(batch, messages=_with_schema(batch.messages, schema)))
            # The trees are not needed any more, and batches may be buffered.
            yield replace(self._resolve_party(batch), roots=())
            if is_consumed:
                return

    # -- validate ----------------------------------------------------------------------------------------------------

    def _validate(self, batch: DisassembledBatch) -> tuple[DisassembledBatch, bool]:
        """Return the messages that pass, and True if a message was consumed. No documents are read after it
        (RCV-05)."""
        is_consumed = False
        for name, component in self._load_components(self._pipeline.validators):
            messages = _message_batch(batch)
            rejected, end = self._find_rejected(name, component, messages)
            if rejected and not (isinstance(component, Validator) and component.recoverable):
                row = min(rejected)
                raise _add_number(messages, row, rejected[row])
            keep = [row not in rejected and (end is None or row < end) for row in range(len(messages))]
            bad = [
                messages.bad_document(row, _add_number(messages, row, failure))
                for row, failure in sorted(rejected.items())
            ]
            if not all(keep):
                roots = tuple(compress(batch.roots, keep))
                batch = replace(batch, messages=batch.messages.filter(pa.array(keep, pa.bool_())), roots=roots)
            batch = replace(
                batch, failures=tuple(sorted((*batch.failures, *bad), key=lambda document: document.number))
            )
            is_consumed = is_consumed or end is not None
        return batch, is_consumed

    def _find_rejected(
        self, name: str, component: Any, messages: MessageBatch
    ) -> tuple[Mapping[int, PipelineFailure], int | None]:
        """Return the failures by row, and the row of the message that was consumed, or None."""
        if isinstance(component, Validator) and component.validates_batches():
            reasons = self._call(name, component.validate_batch, messages)
            return {row: component_failure(name, reason) for row, reason in reasons.items()}, None
        check = component.validate_message if isinstance(component, Validator) else component
        rejected: dict[int, PipelineFailure] = {}
        for row in range(len(messages)):
            try:
                if self._call(name, check, messages.message(row)) is CONSUMED:
                    return rejected, row
            except PipelineFailure as failure:
                rejected[row] = failure
        return rejected, None

    # -- resolve party -----------------------------------------------------------------------------------------------

    def _resolve_party(self, batch: DisassembledBatch) -> DisassembledBatch:
        if not self._pipeline.resolvers:
            return batch
        messages = _message_batch(batch)
        parties: list[str | None] = [None] * len(messages)
        for name, component in self._load_components(self._pipeline.resolvers):
            resolve = component.resolve if isinstance(component, PartyResolver) else component
            for row in range(len(messages)):
                if parties[row] is None:
                    try:
                        party = self._call(name, resolve, messages.message(row))
                        parties[row] = None if party is None else str(BTS.OriginatorPID.check(party))
                    except PipelineFailure as failure:
                        raise _add_number(messages, row, failure) from failure
                    except BadValue as error:
                        raise _add_number(messages, row, component_failure(name, error)) from error
        position = batch.messages.schema.get_field_index(BTS.OriginatorPID.key)
        column = pa.array(parties, pa.string())
        return replace(batch, messages=batch.messages.set_column(position, BTS.OriginatorPID.key, column))

    # -- components --------------------------------------------------------------------------------------------------

    @property
    def _can_fail_interchange(self) -> bool:
        """True if a validator or a party resolver fails the whole interchange instead of one message."""
        validators = [component for _, component in self._load_components(self._pipeline.validators)]
        are_recoverable = all(isinstance(validator, Validator) and validator.recoverable for validator in validators)
        return not are_recoverable or bool(self._pipeline.resolvers)

    def _load_components(self, stage: Sequence[Any]) -> Iterator[tuple[str, Any]]:
        """Yield the names and components of a stage, each loaded once per interchange."""
        for declared in stage:
            # The definition keeps ``declared`` alive, so its id stays valid.
            if id(declared) not in self._components:
                self._components[id(declared)] = declared if isinstance(declared, Format) else self._load(declared)
            yield component_name(declared), self._components[id(declared)]

    def _load(self, declared: Any) -> Any:
        # The import of a user's module may not return, so it has a time limit too.
        return self._time_limit.call(component_name(declared), lambda: load_component(declared, self._pipeline.files))

    def _call(self, name: str, work: Callable[[Any], Any], argument: object) -> Any:
        return self._time_limit.call(name, lambda: run_component(name, work, argument))


def _message_batch(batch: DisassembledBatch) -> MessageBatch:
    assert batch.decoded is not None
    return MessageBatch(batch.messages, batch.decoded, batch.roots)


def _add_number(messages: MessageBatch, row: int, failure: PipelineFailure) -> PipelineFailure:
    return add_document_number(messages.table["number"][row].as_py(), failure)


def _with_schema(messages: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the messages with all columns of the pipeline. A disassembler yields only its own columns."""
    if messages.schema.equals(schema):
        return messages
    present = set(messages.schema.names)
    return pa.RecordBatch.from_arrays(
        [
            messages[field.name] if field.name in present else pa.nulls(messages.num_rows, field.type)
            for field in schema
        ],
        schema=schema,
    )


def disassemble_messages(
    component: Any, message: Message, size: BatchSize, *, position: int
) -> Iterator[DisassembledBatch]:
    """Yield batches of the documents that ``component`` yields, which is a Disassembler or a function. ``position`` is
    its position in the pipeline. What it raises fails the interchange."""
    name = component_name(component)
    promotes: tuple[Property, ...] = getattr(component, "promotes", ())
    assert message.body is not None
    work = component.disassemble if isinstance(component, Disassembler) else component
    content_type: str = getattr(component, "content_type", "application/octet-stream")
    shared = DecodedInterchange.of(message, content_type=content_type, disassembler=position)
    large_documents = Spool()

    def read_documents() -> Iterator[Document | BadDocument]:
        for number, document in enumerate(_check_documents(name, run_component(name, work, message)), 1):
            if isinstance(document, Suspend):
                failure = component_failure(name, document.reason)
                yield BadDocument(number=number, body=document.body, failure=failure)
            elif document.context.get(BTS.MessageDestination) == SUSPEND_QUEUE:
                failure = component_failure(name, "its BTS.MessageDestination is SuspendQueue")
                resumable = document.context.get(BTS.SuspendAsNonResumable) is not True
                content = _read_content(name, document)
                yield BadDocument(number=number, body=content, failure=failure, resumable=resumable)
            else:
                offset = large_documents.size
                content = _read_content(name, document)
                if len(content) > FRAGMENT_SIZE:
                    large_documents.write(content)
                values, message_type = _read_promoted(name, promotes, document)
                yield Document(number, content, values, message_type, offset)

    for batch in build_batches(promotes, read_documents(), size):
        yield replace(batch, decoded=replace(shared, body=large_documents.body))


def _check_documents(name: str, documents: Iterable[Any]) -> Iterator[Message | Suspend]:
    try:
        for document in documents:
            if not isinstance(document, Message | Suspend):
                raise TypeError(f"a disassembler yields messages, not {type(document).__name__}")
            yield document
    except (TimedOut, GeneratorExit, PipelineFailure):
        raise
    except BaseException as error:
        raise component_failure(name, error) from error


def _read_content(name: str, document: Message) -> bytes:
    if document.body is not None and document.body.body.size > MAX_DOCUMENT_SIZE:
        raise component_failure(name, oversize_failure(f"A document has {document.body.body.size:,} bytes", "document"))
    return document.data


def _read_promoted(
    name: str, promotes: tuple[Property, ...], document: Message
) -> tuple[list[Value | None], str | None]:
    promoted = dict(document.context.promoted)
    message_type = promoted.pop(BTS.MessageType.key, None)
    values = [promoted.pop(prop.key, None) for prop in promotes]
    if promoted:
        undeclared = ", ".join(sorted(dotted_name(*split_key(key)) for key in promoted))
        raise PipelineFailure(
            f"{name}: it promotes {undeclared}, which is not in its promotes.",
            hint="Add it to promotes of the component, apply the application again, and resume.",
        )
    return values, None if message_type is None else str(message_type)
