"""Runs the maps of a receive port: after the stages of the pipeline, before publishing (RCV-20, RCV-21).

A message keeps the properties that its pipeline promoted, unless its new document promotes them too. A document that
fails fails its interchange, unless the pipeline is recoverable and BTS.SuspendMessageOnMappingFailure is true (RCV-17).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from postroom.errors import MapFailure
from postroom.maps.port_maps import PortMaps
from postroom.maps.running import MapResult, RunningMaps
from postroom.message import FRAGMENT_SIZE, Body, Context
from postroom.pipelines import ReceivePipeline
from postroom.pipelines.definition import Pipeline
from postroom.pipelines.documents.disassembled_batch import (
    BadDocument,
    BatchSize,
    DecodedInterchange,
    DisassembledBatch,
    Form,
    arrow_schema,
    yield_after_all_pass,
)
from postroom.pipelines.documents.message_batch import MessageBatch
from postroom.pipelines.receive.suspended_document import ResumedPipeline, SuspendedDocument
from postroom.properties import Property
from postroom.system_properties import BTS
from postroom.temporary_bodies import MAPPED_OFFSET, Spool, join_bodies


class MappedPipeline(Pipeline):
    """A receive pipeline followed by the maps of its port."""

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

    def _run(self, body: Body, context: Context, size: BatchSize) -> Iterator[DisassembledBatch]:
        """Yield the batches of the pipeline after mapping. If one document that cannot be mapped would fail a
        recoverable interchange, no batch is yielded before all documents are mapped."""
        # Loaded inside the generator, where an error is a failure of the interchange.
        maps = self._maps.running

        def make_batches() -> Iterator[DisassembledBatch]:
            batches = self._pipeline.disassemble(body, context=context, batch_rows=size.rows, batch_bytes=size.bytes)
            interchange = DecodedInterchange(body=body, context=context, content_type=self.content_type)
            return map(_MappingRun(maps, self._pipeline, interchange).map_batch, batches)

        yield from yield_after_all_pass(
            make_batches, is_immediate=lambda batch: not self.recoverable or _suspends_alone(batch)
        )


def choose_pipeline(
    pipeline: ReceivePipeline, maps: PortMaps, suspended: SuspendedDocument | None = None
) -> ReceivePipeline | ResumedPipeline | MappedPipeline:
    """Return the pipeline that receives an interchange, with the maps of its port if it has some. With ``suspended``,
    return the rest of the pipeline for this document."""
    if suspended is None:
        return MappedPipeline(pipeline, maps) if maps else pipeline
    resumed = ResumedPipeline(pipeline, suspended)
    return MappedPipeline(resumed, maps) if maps and suspended.form is not Form.MAPPED else resumed


def _suspends_alone(batch: DisassembledBatch) -> bool:
    """Return True if every document of the interchange that cannot be mapped is suspended alone."""
    assert batch.decoded is not None
    return batch.decoded.context.get(BTS.SuspendMessageOnMappingFailure) is True


class _MappingRun:
    """One run of the maps over one interchange."""

    def __init__(
        self, maps: RunningMaps, pipeline: ReceivePipeline | ResumedPipeline, interchange: DecodedInterchange
    ) -> None:
        self._maps = maps
        self._recoverable = bool(pipeline.recoverable)
        self._interchange = interchange
        columns = {prop.key: prop for prop in (*pipeline.promotes, *maps.promotes)}
        self._promotes: tuple[Property, ...] = tuple(columns.values())
        self._schema = arrow_schema(self._promotes).append(pa.field("content_type", pa.string()))
        self._large_documents = Spool()

    def map_batch(self, batch: DisassembledBatch) -> DisassembledBatch:
        decoded = batch.decoded or self._interchange
        documents = MessageBatch(batch.messages, decoded)
        selected = {
            row: found
            for row, message_type in enumerate(batch.messages["message_type"].to_pylist())
            if (found := self._maps.find(message_type)) is not None
        }
        messages = {row: documents.message(row) for row in selected}
        outcomes = self._maps.run([(selected_map, messages[row]) for row, selected_map in selected.items()])
        results: dict[int, MapResult] = {}
        bad: dict[int, BadDocument] = {}
        for row, outcome in zip(selected, outcomes, strict=True):
            if isinstance(outcome, MapResult):
                results[row] = outcome
                continue
            number = batch.messages["number"][row].as_py()
            failure = MapFailure(f"Document {number}: {outcome.what}", why=outcome.why, hint=outcome.hint)
            if not self._recoverable or messages[row].context.get(BTS.SuspendMessageOnMappingFailure) is not True:
                raise failure
            bad[row] = documents.bad_document(row, failure)
        mapped = self._apply_results(batch.messages, results)
        if bad:
            mapped = mapped.filter(pa.array([row not in bad for row in range(len(documents))], pa.bool_()))
        return replace(
            batch,
            messages=mapped,
            failures=tuple(sorted((*batch.failures, *bad.values()), key=lambda document: document.number)),
            decoded=self._join_large_documents(decoded),
        )

    def _join_large_documents(self, decoded: DecodedInterchange) -> DecodedInterchange:
        if not self._large_documents.size:
            return decoded
        return replace(decoded, body=join_bodies(decoded.body, self._large_documents.body, offset=MAPPED_OFFSET))

    def _apply_results(self, messages: pa.RecordBatch, results: Mapping[int, MapResult]) -> pa.RecordBatch:
        """Return the rows with the results of the maps. Every batch has the same columns."""
        rows = messages.num_rows
        present = set(messages.schema.names)
        changed: dict[str, list[Any]] = {}
        if results:
            changed = {key: messages[key].to_pylist() for key in ("body", "offset", "length", "message_type")}
            changed["content_type"] = [None] * rows
            for key in {key for result in results.values() for key in result.values}:
                changed[key] = messages[key].to_pylist() if key in present else [None] * rows
            for row, result in results.items():
                self._apply_result(changed, row, result)
        columns = [
            pa.array(changed[field.name], field.type)
            if field.name in changed
            else messages[field.name]
            if field.name in present
            else pa.nulls(rows, field.type)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _apply_result(self, columns: dict[str, list[Any]], row: int, result: MapResult) -> None:
        columns["message_type"][row] = result.message_type
        columns["content_type"][row] = result.content_type
        for key, value in result.values.items():
            columns[key][row] = value
        if result.body.size <= FRAGMENT_SIZE:
            columns["body"][row] = b"".join(result.body.chunks())
            columns["offset"][row] = columns["length"][row] = None
            return
        columns["body"][row] = None
        columns["offset"][row] = MAPPED_OFFSET + self._large_documents.append(result.body)
        columns["length"][row] = result.body.size
