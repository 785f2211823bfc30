"""Where a large document stands in its envelope.

A small document of an envelope may be written anew, because the namespaces that it uses may be declared around it. A
body above the fragment size cannot be: it goes by reference to the envelope's own bytes, which is right if these
say the same alone.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from xml.parsers import expat

from lxml import etree

from postroom.errors import PipelineFailure
from postroom.message import FRAGMENT_SIZE
from postroom.pipelines.xml_tree import read_tree


def write_document(element: etree._Element) -> bytes:
    """An element of an envelope as a document of its own, with the namespaces that are declared around it."""
    return etree.tostring(element, encoding="UTF-8", with_tail=False)


class Places:
    """Where the documents of an envelope stand in it. They are looked for when the first one has to go by reference:
    that takes longer than everything else."""

    def __init__(self, content: bytes, envelope: etree._Element, elements: list[etree._Element]) -> None:
        self._content = content
        self._envelope = envelope
        self._elements = elements

    def placed(self, number: int, document: bytes) -> tuple[int, bytes]:
        """Where the body of the n-th starts in the interchange, and the body; of a small one that does not matter."""
        if len(document) <= FRAGMENT_SIZE:
            return 0, document
        if number in self._found:
            start, end = self._found[number]
            candidate = self._content[start:end]
            if _says_the_same(candidate, document):
                return start, candidate
        raise PipelineFailure(
            f"The document has {len(document):,} bytes and cannot stand alone.",
            why=f"Above {FRAGMENT_SIZE:,} bytes a document stays where it is, but this one needs its envelope for its "
            "namespaces or its encoding.",
            hint="Declare the namespaces in the document itself, send the envelope in UTF-8, or send no envelope.",
        )

    @cached_property
    def _found(self) -> dict[int, tuple[int, int]]:
        numbers = {element: number for number, element in enumerate(self._elements, 1)}
        positions = {
            position: numbers[element]
            for position, element in enumerate(self._envelope.iter("*"))
            if element in numbers
        }
        slices = _slices_of(self._content, positions)
        return {positions[position]: found for position, found in slices.items()}


def _slices_of(envelope: bytes, wanted: Collection[int]) -> dict[int, tuple[int, int]]:
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


def _says_the_same(candidate: bytes, written: bytes) -> bool:
    """Whether a piece of the envelope, read alone, is the document that was written from the envelope."""
    try:
        root = read_tree(candidate)
    except PipelineFailure:
        return False
    return etree.tostring(root, encoding="UTF-8", with_tail=False) == written
