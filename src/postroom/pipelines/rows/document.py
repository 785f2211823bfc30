"""Reads a bad row that was corrected and resumed. It has the form of the message."""

from __future__ import annotations

from collections.abc import Iterator

from postroom.errors import PipelineFailure
from postroom.message import Body
from postroom.pipelines.documents.disassembled_batch import BatchBuilder, BatchSize, DisassembledBatch, read_whole
from postroom.pipelines.flat.definition import Csv
from postroom.pipelines.json.definition import Json
from postroom.pipelines.promotions import Promotions
from postroom.pipelines.rows.definition import Rows


def disassemble(pipeline: Rows, body: Body, size: BatchSize) -> Iterator[DisassembledBatch]:
    """Yield one message, read in the format in which the bodies of the other rows are written."""
    format = row_format(pipeline)
    return _pass_through(pipeline, body) if format is None else format.disassembler(body, size)


def row_format(pipeline: Rows) -> Json | Csv | None:
    """Return the format of the messages, or None if they are the value of one column, whose format is not known."""
    match pipeline.body:
        case "json":
            promote = Promotions(tuple((prop, path.replace(".", "\\.")) for prop, path in pipeline.promotions.entries))
            return Json(promote=promote, message_type=pipeline.message_type)
        case "csv":
            return Csv(promote=pipeline.promotions, header=pipeline.columns, message_type=pipeline.message_type)
    return None


def has_all_promoted_values(pipeline: Rows) -> bool:
    """Return True if the message of a row contains all promoted values, so that a bad row can be corrected."""
    return row_format(pipeline) is not None or not pipeline.promotes


def check_has_all_promoted_values(pipeline: Rows) -> None:
    """Raise PipelineFailure if the message of a row does not contain all promoted values."""
    if not has_all_promoted_values(pipeline):
        raise PipelineFailure(
            "A bad row cannot be resumed if its message is one column and properties are promoted from others.",
            hint="Publish the message and its properties with 'postroom publish', and terminate the instance.",
        )


def _pass_through(pipeline: Rows, body: Body) -> Iterator[DisassembledBatch]:
    check_has_all_promoted_values(pipeline)
    builder = BatchBuilder(promotes=())
    builder.add(1, read_whole(body, "row"), (), offset=0, message_type=pipeline.message_type)
    yield builder.build()
