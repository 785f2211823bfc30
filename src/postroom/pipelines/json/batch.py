"""Some JSON documents of one interchange, read together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from postroom.errors import PipelineFailure
from postroom.pipelines.definitions import Json, JsonLines
from postroom.pipelines.documents.disassembled_batch import BadDocument, Disassembled, message_batch
from postroom.pipelines.json.promotion import json_promotion


def read_documents(
    pipeline: Json | JsonLines,
    *,
    first_number: int,
    bodies: Sequence[bytes],
    offsets: Sequence[int],
    named: Callable[[int, PipelineFailure], PipelineFailure],
) -> Disassembled:
    """A batch of them. ``offsets`` says where each starts in the interchange; ``named`` says in the failure of the n-th
    of these bodies which one it is."""
    columns, failures = json_promotion(pipeline.promotions).read(bodies)
    good = [position for position in range(len(bodies)) if position not in failures]
    messages = message_batch(
        pipeline.promotes,
        numbers=[first_number + position for position in good],
        bodies=[bodies[position] for position in good],
        offsets=[offsets[position] for position in good],
        message_types=[pipeline.message_type] * len(good),
        columns=columns,
    )
    bad = [
        BadDocument(number=first_number + position, body=bodies[position], failure=named(position, failure))
        for position, failure in failures.items()
    ]
    return Disassembled(messages=messages, failures=tuple(bad))
