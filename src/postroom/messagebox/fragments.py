"""Large bodies are stored in fragments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from postroom.message import FRAGMENT_SIZE


def split_into_fragments(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Split content into fragments. The last fragment may be smaller."""
    pending = bytearray()
    for chunk in chunks:
        pending += chunk
        while len(pending) >= FRAGMENT_SIZE:
            yield bytes(pending[:FRAGMENT_SIZE])
            del pending[:FRAGMENT_SIZE]
    if pending:
        yield bytes(pending)
