"""A limit on the nodes of a document: as a tree, many small ones take thirty times the memory of their bytes."""

from __future__ import annotations

from collections.abc import Sequence

from postroom.errors import PipelineFailure

#: Tags and attributes of XML, or values and lists of JSON. As a tree these take half a gigabyte.
MAX_NODES = 4_000_000

#: What each node has at least one of. What stands in texts, and is no node, counts too.
XML_MARKS = (b"<", b'="', b"='")
JSON_MARKS = (b",", b"[", b"{")


def refuse_many_nodes(document: bytes, marks: Sequence[bytes]) -> None:
    """Raises PipelineFailure for a document that is too much to be read as a tree; looked at before it is one."""
    # Every node takes a byte, so that small documents need not be looked at.
    if len(document) <= MAX_NODES:
        return
    found = sum(map(document.count, marks))
    if found > MAX_NODES:
        raise PipelineFailure(
            f"The document has about {found:,} nodes, more than a pipeline reads into.",
            why=f"There may be {MAX_NODES:,}: tags and attributes, or values, because all of them are held in memory.",
            hint="Split it before it is sent, or receive it with the PassThrough pipeline.",
        )
