"""The interchange as one message, whatever it is (TYP-02). A large one is never read: it goes by reference."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from postroom.message import FRAGMENT_SIZE, Body
from postroom.pipelines.disassembled import BatchSize, Disassembled, schema_of


def disassemble(body: Body, size: BatchSize) -> Iterator[Disassembled]:
    """One message, also from an interchange of zero bytes."""
    by_reference = body.size > FRAGMENT_SIZE
    row = {
        "number": 1,
        "body": None if by_reference else b"".join(body.chunks()),
        "offset": 0 if by_reference else None,
        "length": body.size if by_reference else None,
        "message_type": None,
    }
    yield Disassembled(messages=pa.RecordBatch.from_pylist([row], schema=schema_of(())))
