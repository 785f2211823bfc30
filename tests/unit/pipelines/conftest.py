from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from postroom.message import Body, Bytes
from postroom.pipelines import ReceivePipeline
from postroom.pipelines.documents.disassembled_batch import BadDocument, arrow_schema


@dataclass
class Received:
    """All batches of an interchange as Python values."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    failures: list[BadDocument] = field(default_factory=list)
    batch_sizes: list[int] = field(default_factory=list)

    @property
    def bodies(self) -> list[bytes]:
        return [row["body"] for row in self.rows]

    @property
    def numbers(self) -> list[int]:
        return [row["number"] for row in self.rows]

    def column(self, key: str) -> list[Any]:
        return [row[key] for row in self.rows]

    @property
    def reasons(self) -> list[str]:
        return [str(bad.failure) for bad in self.failures]


Receive = Callable[..., Received]


@pytest.fixture
def receive() -> Receive:
    """Return a function that runs an interchange through a definition without problems."""

    def run(pipeline: ReceivePipeline, body: bytes | Body, **size: Any) -> Received:
        assert pipeline.problems() == []
        received = Received()
        for batch in pipeline.disassemble(Bytes(body) if isinstance(body, bytes) else body, **size):
            assert batch.messages.schema == arrow_schema(pipeline.promotes)
            batch.messages.validate(full=True)
            received.rows += batch.messages.to_pylist()
            received.failures += batch.failures
            received.batch_sizes.append(batch.messages.num_rows + len(batch.failures))
        return received

    return run
