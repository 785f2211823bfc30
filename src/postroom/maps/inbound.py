"""The maps of a receive port: after the stages of the pipeline, before anything is published (RCV-20, RCV-21).

A message keeps what its pipeline promoted, but for what its new document promotes. Where a document fails,
so does its interchange, unless the pipeline is recoverable and BTS.SuspendMessageOnMappingFailure is true (RCV-17).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from postroom.errors import MapFailure
from postroom.maps.port_maps import PortMaps
from postroom.maps.running import Made, RunningMaps
from postroom.message import FRAGMENT_SIZE, Body, Context
from postroom.pipelines import ReceivePipeline
from postroom.pipelines.documents.disassembled_batch import BadDocument, Decoded, Disassembled, Form, schema_of
from postroom.pipelines.documents.held import until_all_passed
from postroom.pipelines.documents.message_batch import MessageBatch
from postroom.pipelines.documents.spool import MAPPED, Spool, beside
from postroom.pipelines.running.suspended_document import KeptDocument, ResumedPipeline
from postroom.properties import Property
from postroom.system_properties import BTS


class MappedPipeline:
    """A receive pipeline, and the maps of its port after it; it runs as a pipeline does."""

    def __init__(self, pipeline: ReceivePipeline | ResumedPipeline, maps: PortMaps) -> None:
        self._pipeline = pipeline
        self._maps = maps

    @property
    def recoverable(self) -> bool:
        return bool(self._pipeline.recoverable)

    @property
    def bad_documents(self) -> int | None:
        return self._pipeline.bad_documents

    @property
    def content_type(self) -> str:
        return self._pipeline.content_type

    def disassemble(
        self,
        body: Body,
        *,
        context: Context = Context(),  # noqa: B008 - immutable
        batch_rows: int = 10_000,
        batch_bytes: int = 16 << 20,
    ) -> Iterator[Disassembled]:
        """As a pipeline's. In a recoverable one nothing comes before every document is mapped, if one that cannot be
        would fail all."""
        # In here, where what is raised is the failure of an interchange.
        maps = self._maps.running

        def batches() -> Iterator[Disassembled]:
            found = self._pipeline.disassemble(body, context=context, batch_rows=batch_rows, batch_bytes=batch_bytes)
            received = Decoded(body=body, context=context, content_type=self.content_type)
            return _Mapping(maps, self._pipeline, received).over(found)

        yield from until_all_passed(batches, at_once=lambda batch: not self.recoverable or _suspends_alone(batch))


def received_by(pipeline: ReceivePipeline, maps: PortMaps) -> ReceivePipeline | MappedPipeline:
    """What a location with this pipeline does with an interchange; ``maps`` are those of its port."""
    return MappedPipeline(pipeline, maps) if maps else pipeline


def taken_up_by(
    pipeline: ReceivePipeline, maps: PortMaps, kept: KeptDocument | None
) -> ReceivePipeline | ResumedPipeline | MappedPipeline:
    """What a location does with what was suspended on its way in: an interchange, or one document of it."""
    if kept is None:
        return received_by(pipeline, maps)
    resumed = ResumedPipeline(pipeline, kept)
    return MappedPipeline(resumed, maps) if maps and kept.form is not Form.MAPPED else resumed


def _suspends_alone(batch: Disassembled) -> bool:
    """Whether it is known of all documents of the interchange that one which cannot be mapped is suspended alone."""
    assert batch.decoded is not None
    return batch.decoded.context.get(BTS.SuspendMessageOnMappingFailure) is True


class _Mapping:
    """One run over one interchange."""

    def __init__(self, maps: RunningMaps, pipeline: ReceivePipeline | ResumedPipeline, received: Decoded) -> None:
        self._maps = maps
        self._recoverable = bool(pipeline.recoverable)
        self._received = received
        columns = {prop.key: prop for prop in (*pipeline.promotes, *maps.promotes)}
        self._promotes: tuple[Property, ...] = tuple(columns.values())
        self._schema = schema_of(self._promotes).append(pa.field("content_type", pa.string()))
        self._large = Spool()

    def over(self, batches: Iterator[Disassembled]) -> Iterator[Disassembled]:
        for batch in batches:
            yield self._mapped(batch)

    def _mapped(self, batch: Disassembled) -> Disassembled:
        decoded = batch.decoded or self._received
        seen = MessageBatch(batch.messages, decoded)
        chosen = {
            row: found
            for row, message_type in enumerate(batch.messages["message_type"].to_pylist())
            if (found := self._maps.find(message_type)) is not None
        }
        given = {row: seen.message(row) for row in chosen}
        results = self._maps.run([(one, given[row]) for row, one in chosen.items()])
        made: dict[int, Made] = {}
        bad: dict[int, BadDocument] = {}
        for row, result in zip(chosen, results, strict=True):
            if isinstance(result, Made):
                made[row] = result
                continue
            number = batch.messages["number"][row].as_py()
            failure = MapFailure(f"Document {number}: {result.what}", why=result.why, hint=result.hint)
            if not self._recoverable or given[row].context.get(BTS.SuspendMessageOnMappingFailure) is not True:
                raise failure
            bad[row] = seen.refused(row, failure)
        messages = self._rebuilt(batch.messages, made)
        if bad:
            messages = messages.filter(pa.array([row not in bad for row in range(len(seen))], pa.bool_()))
        return replace(
            batch,
            messages=messages,
            failures=tuple(sorted((*batch.failures, *bad.values()), key=lambda one: one.number)),
            decoded=self._beside(decoded),
        )

    def _beside(self, decoded: Decoded) -> Decoded:
        if not self._large.size:
            return decoded
        return replace(decoded, body=beside(decoded.body, self._large.body, apart=MAPPED))

    def _rebuilt(self, messages: pa.RecordBatch, made: Mapping[int, Made]) -> pa.RecordBatch:
        """The rows with what the maps made of them; every batch has the same columns."""
        rows = messages.num_rows
        known = set(messages.schema.names)
        changed: dict[str, list[Any]] = {}
        if made:
            changed = {key: messages[key].to_pylist() for key in ("body", "offset", "length", "message_type")}
            changed["content_type"] = [None] * rows
            for key in {key for one in made.values() for key in one.values}:
                changed[key] = messages[key].to_pylist() if key in known else [None] * rows
            for row, one in made.items():
                self._put(changed, row, one)
        columns = [
            pa.array(changed[field.name], field.type)
            if field.name in changed
            else messages[field.name]
            if field.name in known
            else pa.nulls(rows, field.type)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _put(self, columns: dict[str, list[Any]], row: int, one: Made) -> None:
        columns["message_type"][row] = one.message_type
        columns["content_type"][row] = one.content_type
        for key, value in one.values.items():
            columns[key][row] = value
        if one.body.size <= FRAGMENT_SIZE:
            columns["body"][row] = b"".join(one.body.chunks())
            columns["offset"][row] = columns["length"][row] = None
            return
        columns["body"][row] = None
        columns["offset"][row], columns["length"][row] = MAPPED + self._large.append(one.body), one.body.size
