"""A row that comes again alone, because it was bad and somebody has mended it: as the message that it should be."""

from __future__ import annotations

from collections.abc import Iterator

from postroom.errors import PipelineFailure
from postroom.message import Body
from postroom.pipelines.definitions import Csv, Json
from postroom.pipelines.documents.disassembled_batch import BatchSize, Disassembled, Rows, read_whole
from postroom.pipelines.flat import csv_rows
from postroom.pipelines.json import disassembler as json_document
from postroom.pipelines.promotions import Promotions
from postroom.pipelines.rows.definition import Rows as RowsPipeline


def disassemble(pipeline: RowsPipeline, body: Body, size: BatchSize) -> Iterator[Disassembled]:
    """One message, read as the bodies of the others are written."""
    match format_of(pipeline):
        case Json() as format:
            return json_document.disassemble(format, body, size)
        case Csv() as format:
            return csv_rows.disassemble(format, body, size)
    return _as_it_is(pipeline, body)


def format_of(pipeline: RowsPipeline) -> Json | Csv | None:
    """What reads the messages of such rows; None where they are one column, of which only its source knows what it
    is."""
    match pipeline.body:
        case "json":
            promote = Promotions(tuple((prop, path.replace(".", "\\.")) for prop, path in pipeline.promotions.entries))
            return Json(promote=promote, message_type=pipeline.message_type)
        case "csv":
            return Csv(promote=pipeline.promotions, header=pipeline.columns, message_type=pipeline.message_type)
    return None


def says_all(pipeline: RowsPipeline) -> bool:
    """Whether the message of a row says what the row promotes, so that a bad one can be mended."""
    return format_of(pipeline) is not None or not pipeline.promotes


def must_say_all(pipeline: RowsPipeline) -> None:
    if not says_all(pipeline):
        raise PipelineFailure(
            "A row that was bad cannot be resumed here: its message is one column, and properties come of others.",
            hint="Publish the message with 'postroom publish', with its properties, and terminate the instance.",
        )


def _as_it_is(pipeline: RowsPipeline, body: Body) -> Iterator[Disassembled]:
    must_say_all(pipeline)
    rows = Rows(promotes=())
    rows.add(1, read_whole(body, "row"), (), offset=0, message_type=pipeline.message_type)
    yield rows.finish()
