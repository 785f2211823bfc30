"""Disassembles JSON: one document, an array of documents, or one document per line."""

from __future__ import annotations

from collections.abc import Iterator

from postroom.errors import PipelineFailure
from postroom.message import Body
from postroom.pipelines.definitions import Json, JsonLines
from postroom.pipelines.documents.disassembled_batch import BatchBuilder, BatchSize, DisassembledBatch, read_whole
from postroom.pipelines.documents.line_blocks import LineBlock, read_line_blocks
from postroom.pipelines.json.failure import UTF_8_MARK, UTF_16_MARKS, utf_16_failure
from postroom.pipelines.json.promotion import compile_json_promotion
from postroom.pipelines.json.split import read_documents, split_documents


def disassemble_document(pipeline: Json, body: Body, size: BatchSize) -> Iterator[DisassembledBatch]:
    """Yield one message whose body is the interchange, or with ``split`` one message for each element of the array."""
    content = read_whole(body, "JSON document")
    if content.startswith(UTF_16_MARKS):
        raise utf_16_failure()
    document = content.removeprefix(UTF_8_MARK)
    if not document.strip():
        raise PipelineFailure(
            "The interchange is empty.",
            why="An empty interchange is not a JSON document.",
            hint="Send a JSON document.",
        )
    if pipeline.split is not None:
        yield from split_documents(pipeline, pipeline.split, content, size)
        return
    values = compile_json_promotion(pipeline.promotions).values(document)
    builder = BatchBuilder(promotes=pipeline.promotes)
    builder.add(1, content, values, offset=0, message_type=pipeline.message_type)
    yield builder.build()


def disassemble_lines(pipeline: JsonLines, body: Body, size: BatchSize) -> Iterator[DisassembledBatch]:
    """Yield one message for each line that is not blank, in batches of one block of lines."""
    count = 0
    for block in read_line_blocks(body, size):
        lines = _Lines(block)
        if lines.bodies:
            yield read_documents(
                pipeline,
                first_number=count + 1,
                bodies=lines.bodies,
                offsets=lines.offsets,
                add_position=lines.add_line_number,
            )
        count += len(lines.bodies)


class _Lines:
    """The documents in a block of lines: their bytes, line numbers and offsets."""

    def __init__(self, block: LineBlock) -> None:
        self.bodies: list[bytes] = []
        self.numbers: list[int] = []
        self.offsets: list[int] = []
        next_offset = block.offset
        for number, line in enumerate(block.lines, block.first_line):
            offset = next_offset
            next_offset += len(line) + 1
            if number == 1:
                if line.startswith(UTF_16_MARKS):
                    raise utf_16_failure()
                if line.startswith(UTF_8_MARK):
                    offset += len(UTF_8_MARK)
                    line = line.removeprefix(UTF_8_MARK)
            if line.endswith(b"\r"):
                line = line[:-1]
            if line and not line.isspace():
                self.bodies.append(line)
                self.numbers.append(number)
                self.offsets.append(offset)

    def add_line_number(self, position: int, failure: PipelineFailure) -> PipelineFailure:
        return PipelineFailure(f"Line {self.numbers[position]}: {failure.what}", why=failure.why, hint=failure.hint)
