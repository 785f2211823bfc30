"""Builds batches from the records of a flat interchange, one message per record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from postroom.errors import PipelineFailure
from postroom.pipelines.documents.disassembled_batch import BatchBuilder, BatchSize, DisassembledBatch, WrittenDocuments
from postroom.pipelines.flat.definition import Csv, FlatFile
from postroom.values import Value

Record = TypeVar("Record")


class ReadDocument(NamedTuple):
    """The document of a record, with its promoted values and its offset for ``BatchBuilder.add``."""

    body: bytes
    values: Sequence[Value | None]
    offset: int


def build_batches(
    records: Iterable[Record],
    *,
    pipeline: Csv | FlatFile,
    size: BatchSize,
    read: Callable[[Record, WrittenDocuments], ReadDocument],
    to_interchange: Callable[[Record], bytes],
) -> Iterator[DisassembledBatch]:
    """Yield the documents that ``read`` returns for the records. If it raises PipelineFailure, the record fails, with
    the bytes that ``to_interchange`` returns."""
    written = WrittenDocuments()
    builder = BatchBuilder(promotes=pipeline.promotes)
    for number, record in enumerate(records, 1):
        try:
            document = read(record, written)
        except PipelineFailure as failure:
            builder.add_failure(number, to_interchange(record), failure)
        else:
            builder.add(
                number, document.body, document.values, offset=document.offset, message_type=pipeline.message_type
            )
        if builder.is_full(size):
            yield builder.build(written.body)
            builder = BatchBuilder(promotes=pipeline.promotes)
    if len(builder):
        yield builder.build(written.body)
