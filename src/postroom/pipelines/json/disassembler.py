"""An interchange that is one JSON document, or has an array of them in it."""

from __future__ import annotations

from collections.abc import Iterator

from postroom.errors import PipelineFailure
from postroom.message import Body
from postroom.pipelines.definitions import Json
from postroom.pipelines.documents.disassembled_batch import BatchSize, Disassembled, Rows, read_whole
from postroom.pipelines.json.failure import UTF_8_MARK, refuse_utf_16
from postroom.pipelines.json.promotion import json_promotion
from postroom.pipelines.json.split import split_documents


def disassemble(pipeline: Json, body: Body, size: BatchSize) -> Iterator[Disassembled]:
    """One message whose body is the whole interchange, or with ``split`` one for each element of the array."""
    content = read_whole(body, "JSON document")
    refuse_utf_16(content)
    document = content.removeprefix(UTF_8_MARK)
    if not document.strip():
        raise PipelineFailure(
            "The interchange is empty.", why="An empty interchange is no JSON document.", hint="Send a JSON document."
        )
    if pipeline.split is not None:
        yield from split_documents(pipeline, pipeline.split, content, size)
        return
    values = json_promotion(pipeline.promotions).values(document)
    rows = Rows(promotes=pipeline.promotes)
    rows.add(1, content, values, offset=0, message_type=pipeline.message_type)
    yield rows.finish()
