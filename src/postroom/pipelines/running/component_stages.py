"""An interchange through the components of a pipeline, stage by stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

import pyarrow as pa

from postroom.errors import BadValue, PipelineFailure
from postroom.message import CHUNK_SIZE, MAX_PARTS, Body, Message
from postroom.pipelines.components.contract import CONSUMED, Decoder, Disassembler, PartyResolver, Validator
from postroom.pipelines.definitions import Format, PassThrough
from postroom.pipelines.documents.disassembled_batch import BatchSize, Decoded, Disassembled, in_document, schema_of
from postroom.pipelines.documents.held import until_all_passed
from postroom.pipelines.documents.message_batch import MessageBatch
from postroom.pipelines.receive_pipeline import Receive
from postroom.pipelines.running import formats
from postroom.pipelines.running.component_calls import component_failure, run_component
from postroom.pipelines.running.user_disassembler import disassemble_messages
from postroom.pipelines.shipping.stored_component import load_component, name_of
from postroom.system_properties import BTS
from postroom.time_limit import TimeLimit


class ComponentStages:
    """One run of a pipeline over one interchange. ``is_known``: it is one for the first disassembler, which is not
    asked. ``complete`` is done to what is disassembled, before anybody sees it."""

    def __init__(
        self,
        pipeline: Receive,
        time_limit: TimeLimit,
        *,
        is_known: bool = False,
        complete: Callable[[Disassembled], Disassembled] | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._time_limit = time_limit
        self._is_known = is_known
        self._complete = complete
        self._components: dict[int, Any] = {}

    def run(self, interchange: Message, size: BatchSize) -> Iterator[Disassembled]:
        """Batches as they come. Where one message that does not pass fails a recoverable interchange (RCV-16, RCV-19),
        nothing comes before everything has passed."""
        message = self._decode(interchange)
        if message is None:
            return
        disassembler = self._choose(message)
        if not self._pipeline.recoverable or not self._fails_as_a_whole:
            yield from self._documents(disassembler, message, size)
            return
        yield from until_all_passed(lambda: self._documents(disassembler, message, size))

    # -- decode ------------------------------------------------------------------------------------------------------

    def _decode(self, message: Message) -> Message | None:
        for name, component in self._loaded(self._pipeline.decoders):
            work = component.decode if isinstance(component, Decoder) else component
            answer = self._call(name, work, message)
            if answer is None:
                return None
            try:
                message = answer if isinstance(answer, Message) else message.with_body(answer)
                if message.body is None:
                    raise ValueError("its answer has no parts; a received message has a body part")
                if len(message.parts) > MAX_PARTS:
                    raise ValueError(f"its answer has {len(message.parts)} parts; there may be {MAX_PARTS}")
            except Exception as error:
                raise component_failure(name, error) from error
        # Routing properties come of documents, so that one interchange has many values of them.
        return message.with_context(message.context.demote_all())

    # -- disassemble -------------------------------------------------------------------------------------------------

    def _choose(self, message: Message) -> tuple[int, str, Any]:
        """The first that takes it (RCV-03): its place, its name, and itself."""
        if not self._pipeline.disassemblers:
            return 1, "PassThrough", PassThrough()
        if self._is_known:
            return 1, *next(self._loaded(self._pipeline.disassemblers))
        assert message.body is not None
        head = _head(message.body.body)
        for place, (name, component) in enumerate(self._loaded(self._pipeline.disassemblers), 1):
            if isinstance(component, Format):
                if formats.probe(component, head):
                    return place, name, component
            elif not isinstance(component, Disassembler) or self._call(name, component.probe, message):
                return place, name, component
        raise PipelineFailure(
            "No disassembler of the pipeline recognises the interchange.",
            why=f"It begins with {head[:40]!r}.",
            hint="Send it in a format of this location, or add a disassembler to the pipeline.",
        )

    def _documents(self, chosen: tuple[int, str, Any], message: Message, size: BatchSize) -> Iterator[Disassembled]:
        place, name, component = chosen
        assert message.body is not None
        body = message.body
        if isinstance(component, Format):
            document_type = formats.document_type(component, body.content_type)
            decoded = Decoded.of(message, content_type=document_type, disassembler=place)
            batches: Iterator[Disassembled] = (
                replace(batch, decoded=decoded.with_written(batch.written))
                for batch in formats.disassemble(component, decoded.body, size)
            )
        else:
            batches = disassemble_messages(component, message, size, place=place)
        if self._complete is not None:
            batches = map(self._complete, batches)
        schema = schema_of(self._pipeline.promotes)
        while (batch := self._time_limit.call(name, lambda: next(batches, None))) is not None:
            batch, consumed = self._check(replace(batch, messages=_with_schema(batch.messages, schema)))
            # Nobody needs the trees any more, and batches may be held.
            yield replace(self._resolve(batch), roots=())
            if consumed:
                return

    # -- validate ----------------------------------------------------------------------------------------------------

    def _check(self, batch: Disassembled) -> tuple[Disassembled, bool]:
        """What passes, and whether a message was consumed: then nothing that follows it is asked for (RCV-05)."""
        consumed = False
        for name, component in self._loaded(self._pipeline.validators):
            seen = _seen(batch)
            rejected, end = self._rejected(name, component, seen)
            if rejected and not (isinstance(component, Validator) and component.recoverable):
                row = min(rejected)
                raise _in_document(seen, row, rejected[row])
            keep = [row not in rejected and (end is None or row < end) for row in range(len(seen))]
            bad = [seen.refused(row, _in_document(seen, row, failure)) for row, failure in sorted(rejected.items())]
            if not all(keep):
                roots = tuple(compress(batch.roots, keep))
                batch = replace(batch, messages=batch.messages.filter(pa.array(keep, pa.bool_())), roots=roots)
            batch = replace(batch, failures=tuple(sorted((*batch.failures, *bad), key=lambda one: one.number)))
            consumed = consumed or end is not None
        return batch, consumed

    def _rejected(
        self, name: str, component: Any, seen: MessageBatch
    ) -> tuple[Mapping[int, PipelineFailure], int | None]:
        if isinstance(component, Validator) and component.looks_at_batches():
            found = self._call(name, component.validate_batch, seen)
            return {row: component_failure(name, reason) for row, reason in found.items()}, None
        check = component.validate_message if isinstance(component, Validator) else component
        rejected: dict[int, PipelineFailure] = {}
        for row in range(len(seen)):
            try:
                if self._call(name, check, seen.message(row)) is CONSUMED:
                    return rejected, row
            except PipelineFailure as failure:
                rejected[row] = failure
        return rejected, None

    # -- resolve party -----------------------------------------------------------------------------------------------

    def _resolve(self, batch: Disassembled) -> Disassembled:
        if not self._pipeline.resolvers:
            return batch
        seen = _seen(batch)
        parties: list[str | None] = [None] * len(seen)
        for name, component in self._loaded(self._pipeline.resolvers):
            resolve = component.resolve if isinstance(component, PartyResolver) else component
            for row in range(len(seen)):
                if parties[row] is None:
                    try:
                        party = self._call(name, resolve, seen.message(row))
                        parties[row] = None if party is None else str(BTS.OriginatorPID.check(party))
                    except PipelineFailure as failure:
                        raise _in_document(seen, row, failure) from failure
                    except BadValue as error:
                        raise _in_document(seen, row, component_failure(name, error)) from error
        position = batch.messages.schema.get_field_index(BTS.OriginatorPID.key)
        column = pa.array(parties, pa.string())
        return replace(batch, messages=batch.messages.set_column(position, BTS.OriginatorPID.key, column))

    # -- components --------------------------------------------------------------------------------------------------

    @property
    def _fails_as_a_whole(self) -> bool:
        loaded = [component for _, component in self._loaded(self._pipeline.validators)]
        alone = all(isinstance(one, Validator) and one.recoverable for one in loaded)
        return not alone or bool(self._pipeline.resolvers)

    def _loaded(self, stage: Sequence[Any]) -> Iterator[tuple[str, Any]]:
        for one in stage:
            # Made once for the interchange; the definition keeps ``one``, and with it its id.
            if id(one) not in self._components:
                self._components[id(one)] = one if isinstance(one, Format) else self._load(one)
            yield name_of(one), self._components[id(one)]

    def _load(self, one: Any) -> Any:
        # A module may do anything while it is imported.
        return self._time_limit.call(name_of(one), lambda: load_component(one, self._pipeline.files))

    def _call(self, name: str, work: Callable[[Any], Any], argument: object) -> Any:
        return self._time_limit.call(name, lambda: run_component(name, work, argument))


def _seen(batch: Disassembled) -> MessageBatch:
    assert batch.decoded is not None
    return MessageBatch(batch.messages, batch.decoded, batch.roots)


def _in_document(seen: MessageBatch, row: int, failure: PipelineFailure) -> PipelineFailure:
    return in_document(seen.table["number"][row].as_py(), failure)


def _with_schema(messages: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Every batch of a pipeline has the same columns, whichever disassembler made it."""
    if messages.schema.equals(schema):
        return messages
    known = set(messages.schema.names)
    return pa.RecordBatch.from_arrays(
        [messages[field.name] if field.name in known else pa.nulls(messages.num_rows, field.type) for field in schema],
        schema=schema,
    )


def _head(body: Body) -> bytes:
    return next(iter(body.chunks()), b"")[: min(CHUNK_SIZE, 4096)]
