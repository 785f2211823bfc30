"""An interchange of JSON documents, one a line."""

from __future__ import annotations

from collections.abc import Iterator

from postroom.errors import PipelineFailure
from postroom.message import Body
from postroom.pipelines.definitions import JsonLines
from postroom.pipelines.disassembled import BadDocument, BatchSize, Disassembled, message_batch
from postroom.pipelines.json_failure import UTF_8_MARK, refuse_utf_16
from postroom.pipelines.json_promotion import JsonPromotion, json_promotion
from postroom.pipelines.lines import LineBlock, line_blocks


def disassemble(pipeline: JsonLines, body: Body, size: BatchSize) -> Iterator[Disassembled]:
    """One message a line that is not blank, a block of lines at a time."""
    promotion = json_promotion(pipeline.promotions)
    count = 0
    for block in line_blocks(body, size):
        documents = _Documents(block, count + 1)
        count += len(documents.bodies)
        if documents.bodies:
            yield documents.read(pipeline, promotion)


class _Documents:
    """The documents in a block of lines: their numbers, their bytes, their lines and where they start."""

    def __init__(self, block: LineBlock, first_number: int) -> None:
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
        self.numbers = range(first_number, first_number + len(self.bodies))

    def read(self, pipeline: JsonLines, promotion: JsonPromotion) -> Disassembled:
        columns, failures = promotion.read(self.bodies)
        good = [position for position in range(len(self.bodies)) if position not in failures]
        messages = message_batch(
            pipeline.promotes,
            numbers=[self.numbers[position] for position in good],
            bodies=[self.bodies[position] for position in good],
            offsets=[self.offsets[position] for position in good],
            message_types=[pipeline.message_type] * len(good),
            columns=columns,
        )
        bad = [self._bad(position, failure) for position, failure in failures.items()]
        return Disassembled(messages=messages, failures=tuple(bad))

    def _bad(self, position: int, failure: PipelineFailure) -> BadDocument:
        reason = PipelineFailure(f"Line {self.lines[position]}: {failure.what}", why=failure.why, hint=failure.hint)
        return BadDocument(number=self.numbers[position], body=self.bodies[position], failure=reason)
