"""A limit on the nodes of a document: as a tree, many small ones take thirty times the memory of their bytes."""

from __future__ import annotations

from collections.abc import Mapping

from postroom.errors import PipelineFailure

#: Elements, texts and attributes of XML, values and lists of JSON, or fields of a row. As a tree these take half a
#: gigabyte (130 bytes each); an envelope that is opened takes a second tree for what is inside.
MAX_NODES = 4_000_000

#: What every node has at least one of, and for how many nodes each counts; what stands in texts counts too. In XML a
#: tag that ends an element is none, nor is the nothing between two tags; an attribute is two, itself and its text.
XML_MARKS = {b"<": 1, b"</": -1, b">": 1, b"><": -1, b"=": 2}
JSON_MARKS = {b",": 1, b"[": 1, b"{": 1}


def refuse_many_nodes(document: bytes, marks: Mapping[bytes, int]) -> None:
    """Raises PipelineFailure for a document that is too much to be read as a tree; looked at before it is one."""
    # Every node takes two bytes at least (`1,`, `[]`, ` a=""`), so that small documents need not be looked at.
    if len(document) <= 2 * MAX_NODES:
        return
    found = sum(nodes * document.count(mark) for mark, nodes in marks.items())
    if found > MAX_NODES:
        raise PipelineFailure(
            f"The document has about {found:,} nodes, more than a pipeline reads into.",
            why=f"There may be {MAX_NODES:,}: elements, texts, attributes, or values; all of them are held in memory.",
            hint="Split it before it is sent, or receive it with the PassThrough pipeline.",
        )
