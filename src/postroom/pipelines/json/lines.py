"""An interchange of JSON documents, one a line."""

from __future__ import annotations

from collections.abc import Iterator

from postroom.errors import PipelineFailure
from postroom.message import Body
from postroom.pipelines.definitions import JsonLines
from postroom.pipelines.documents.disassembled_batch import BatchSize, Disassembled
from postroom.pipelines.documents.line_blocks import LineBlock, line_blocks
from postroom.pipelines.json.batch import read_documents
from postroom.pipelines.json.failure import UTF_8_MARK, refuse_utf_16


def disassemble(pipeline: JsonLines, body: Body, size: BatchSize) -> Iterator[Disassembled]:
    """One message a line that is not blank, a block of lines at a time."""
    count = 0
    for block in line_blocks(body, size):
        found = _Lines(block)
        if found.bodies:
            yield read_documents(
                pipeline, first_number=count + 1, bodies=found.bodies, offsets=found.offsets, named=found.named
            )
        count += len(found.bodies)


class _Lines:
    """The documents in a block of lines: their bytes, their lines and where they start."""

    def __init__(self, block: LineBlock) -> None:
        self.bodies: list[bytes] = []
        self.lines: list[int] = []
        self.offsets: list[int] = []
        following = block.offset
        for line_number, line in enumerate(block.lines, block.first_line):
            offset = following
            following += len(line) + 1
            if line_number == 1:
                refuse_utf_16(line)
                if line.startswith(UTF_8_MARK):
                    offset += len(UTF_8_MARK)
                    line = line.removeprefix(UTF_8_MARK)
            if line.endswith(b"\r"):
                line = line[:-1]
            if line and not line.isspace():
                self.bodies.append(line)
                self.lines.append(line_number)
                self.offsets.append(offset)

    def named(self, position: int, failure: PipelineFailure) -> PipelineFailure:
        return PipelineFailure(f"Line {self.lines[position]}: {failure.what}", why=failure.why, hint=failure.hint)
