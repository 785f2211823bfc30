"""The log entry of a batch on a file system of Hadoop is recognised for several kinds of stores."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from postroom.messagebox.sinks.sink_batches import SinkBatch
from postroom.spark.sinks.file_sink import HadoopTarget, log_entry

BATCH = SinkBatch(batch_id=uuid.UUID(int=7), number=3, attempt=2, sink={}, seqs=(1,), tries=(0,))
OTHER = SinkBatch(batch_id=uuid.UUID(int=8), number=3, attempt=2, sink={}, seqs=(1,), tries=(0,))
WHOLE = log_entry(BATCH, "batch=000000000003-00000000000000000000000000000007-000001")


class Store:
    """A file system of Hadoop with one file, and the stream that reads it. The file has ``content``, and the store
    returns ``length``."""

    def __init__(self, content: bytes | None, length: int) -> None:
        self.content = content
        self.length = length
        self.opened = 0

    def exists(self, path: str) -> bool:
        return self.content is not None

    def getFileStatus(self, path: str) -> Store:  # noqa: N802  (as Java calls it)
        return self

    def getLen(self) -> int:  # noqa: N802  (as Java calls it)
        return self.length

    def open(self, path: str) -> Store:
        self.opened += 1
        return self

    def readAllBytes(self) -> bytes | None:  # noqa: N802  (as Java calls it)
        return self.content

    def close(self) -> None:
        self.opened -= 1


class Target(HadoopTarget):
    def __init__(self, store: Store) -> None:
        session: Any = None
        super().__init__(session, "s3a://lake")
        self._store = store

    def _open(self, uri: str) -> tuple[Any, Any]:
        return uri, self._store


@pytest.mark.parametrize(
    ("content", "length", "is_published"),
    [
        (None, 0, False),
        (WHOLE, len(WHOLE), True),
        (WHOLE, 4096, True),
        (WHOLE[:-1], len(WHOLE) - 1, False),
        (WHOLE[:-1], 4096, False),
        (WHOLE[:20], 20, False),
        (b"", 0, False),
        (b"[]\n", 4096, False),
        (b"\xff\n", 4096, False),
        (log_entry(OTHER, "batch=elsewhere"), 4096, False),
    ],
)
def test_a_batch_is_published_if_its_entry_is_complete(content: bytes | None, length: int, is_published: bool) -> None:
    """A store that encrypts or pads files returns another length."""
    store = Store(content, length)
    assert Target(store).is_published(BATCH) is is_published
    assert store.opened == 0, "what was opened is closed"
