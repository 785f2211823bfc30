"""The maximum number of nodes of a document. As a tree, many small nodes take thirty times the memory of their
bytes."""

from __future__ import annotations

from collections.abc import Mapping

from postroom.errors import PipelineFailure

#: Nodes are elements, texts and attributes of XML, values and lists of JSON, or fields of a row. As a tree this number
#: takes half a gigabyte (130 bytes each). An envelope that is opened takes a second tree for its documents.
MAX_NODES = 4_000_000

#: Byte sequences of which every node has at least one, and the number of nodes that each counts for. Those inside texts
#: are counted too. In XML an end tag and the empty text between two tags are not nodes; an attribute is two, itself and
#: its text.
XML_MARKS = {b"<": 1, b"</": -1, b">": 1, b"><": -1, b"=": 2}
JSON_MARKS = {b",": 1, b"[": 1, b"{": 1}


def check_node_count(document: bytes, marks: Mapping[bytes, int]) -> None:
    """Raise PipelineFailure if a document has too many nodes to be parsed into a tree. It counts bytes, before
    parsing."""
    # Every node takes at least two bytes (`1,`, `[]`, ` a=""`), so small documents need no count.
    if len(document) <= 2 * MAX_NODES:
        return
    nodes = sum(weight * document.count(mark) for mark, weight in marks.items())
    if nodes > MAX_NODES:
        raise PipelineFailure(
            f"The document has about {nodes:,} nodes, which is more than a pipeline can read.",
            why=f"The maximum is {MAX_NODES:,} elements, texts, attributes or values, because all are in memory.",
            hint="Split it before you send it, or receive it with the PassThrough pipeline.",
        )
