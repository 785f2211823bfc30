"""Where a large document stands in its envelope.

A document of an envelope is normally written anew, because the namespaces that it uses may be declared around it. A
body above the fragment size cannot be: it goes by reference to the envelope's own bytes, which is right if these
say the same alone.
"""

from __future__ import annotations

from collections.abc import Collection
from xml.parsers import expat

from lxml import etree

from postroom.errors import PipelineFailure
from postroom.pipelines.xml_tree import read_tree


def slices_of(envelope: bytes, wanted: Collection[int]) -> dict[int, tuple[int, int]]:
    """Start and end of some elements, given by their position among all elements of the envelope."""
    found: dict[int, tuple[int, int]] = {}
    open_elements: list[tuple[int, int]] = []
    count = 0

    def start(name: str, attributes: object) -> None:
        nonlocal count
        open_elements.append((count, parser.CurrentByteIndex))
        count += 1

    def end(name: str) -> None:
        position, first = open_elements.pop()
        if position in wanted:
            found[position] = (first, envelope.find(b">", parser.CurrentByteIndex) + 1)

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    try:
        parser.Parse(envelope, True)
    except (expat.ExpatError, LookupError, ValueError):
        # An encoding that only the other parser knows: what was found so far is checked like everything else.
        return found
    return found


def says_the_same(candidate: bytes, written: bytes) -> bool:
    """Whether a piece of the envelope, read alone, is the document that was written from the envelope."""
    try:
        root = read_tree(candidate)
    except PipelineFailure:
        return False
    return etree.tostring(root, encoding="UTF-8", with_tail=False) == written
