"""XML by its schemas: envelopes are opened, and every document inside becomes a message (RCV-09, RCV-10).

A document gets the properties of its own schema and those of the envelopes around it; where two give one property, the
inner one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import Any, NamedTuple

from lxml import etree

from postroom.errors import PipelineFailure
from postroom.message import Body
from postroom.pipelines.definitions import XmlReceive
from postroom.pipelines.documents.disassembled_batch import BatchSize, Disassembled, Rows, in_document, read_whole
from postroom.pipelines.documents.written_documents import WrittenDocuments
from postroom.pipelines.xml.path import compile_path
from postroom.pipelines.xml.promotion import message_type_of
from postroom.pipelines.xml.schema_promotion import IsSelfClosed, schema_promotion
from postroom.pipelines.xml.self_closed import SelfClosed
from postroom.pipelines.xml.tree import read_tree, write_document
from postroom.schemas import Schema
from postroom.values import Value

#: How deep envelopes may stand in each other. Each is read again for itself, so that depth costs what size does.
MAX_ENVELOPES = 16


class _Found(NamedTuple):
    """An element of the interchange, with what the envelopes around it gave."""

    element: etree._Element
    inherited: Mapping[str, Value]
    #: False as long as it may be an envelope itself.
    is_document: bool = False


def disassemble(pipeline: XmlReceive, body: Body, size: BatchSize) -> Iterator[Disassembled]:
    """One message, or one for each document of an envelope."""
    content = read_whole(body, "XML document")
    if not content:
        yield _empty(pipeline)
        return
    root = read_tree(content)
    closed = SelfClosed(content, root)
    schema = _schema_of(pipeline, root)
    if schema is None or not schema.envelope:
        rows = Rows(promotes=pipeline.promotes)
        values = {} if schema is None else schema_promotion(schema).values(root, _closed_in(closed, root, lambda: 0))
        _add(rows, pipeline, 1, content, root, values, 0)
        yield rows.finish()
    else:
        yield from _open(pipeline, content, root, closed, size)


def _empty(pipeline: XmlReceive) -> Disassembled:
    """A message without a body: unrecognised like any other that has no schema (TYP-04)."""
    if not pipeline.allow_unrecognized:
        raise PipelineFailure(
            "The interchange is empty.",
            why="An empty interchange has no message type, and so no schema.",
            hint="Send an XML document, or set allow_unrecognized.",
        )
    rows = Rows(promotes=pipeline.promotes)
    rows.add(1, b"", [None] * len(pipeline.promotes), offset=0, message_type=None)
    return rows.finish()


def _open(
    pipeline: XmlReceive, content: bytes, root: etree._Element, closed: SelfClosed, size: BatchSize
) -> Iterator[Disassembled]:
    found = _documents(pipeline, root, closed)
    positions = _Positions(root, found)
    written = WrittenDocuments()
    rows = Rows(promotes=pipeline.promotes)
    for number, one in enumerate(found, 1):
        document = write_document(one.element)
        try:
            # Read again as a subscriber will: alone, with this element as its root.
            alone = read_tree(document)
            schema = _schema_of(pipeline, alone)
            own = _closed_in(closed, alone, positions.first(one.element))
            values = {} if schema is None else schema_promotion(schema).values(alone, own)
            offset = written.place(document)
            _add(rows, pipeline, number, document, alone, {**one.inherited, **values}, offset)
        except PipelineFailure as failure:
            rows.fail(number, document, in_document(number, failure), around=one.inherited)
        if rows.fills(size):
            yield rows.finish(written.body)
            rows = Rows(promotes=pipeline.promotes)
    if len(rows):
        yield rows.finish(written.body)


def _documents(pipeline: XmlReceive, root: etree._Element, closed: SelfClosed) -> list[_Found]:
    """The documents in an envelope, in their order.

    Envelopes are opened one depth after the other, and what is read for one of them is gone before the next: held for
    all depths at once, it would be many times the size of the interchange."""
    found = [_Found(root, {})]
    for depth in count(1):
        positions = _Positions(root, found)
        inside: list[_Found] = []
        for one in found:
            if one.is_document:
                inside.append(one)
                continue
            schema = pipeline.schemas.find(message_type_of(one.element))
            if schema is None or not schema.envelope:
                inside.append(_Found(one.element, one.inherited, True))
                continue
            if depth > MAX_ENVELOPES:
                raise PipelineFailure(
                    f"More than {MAX_ENVELOPES} envelopes stand in each other.",
                    why="Every envelope in another is read once more, so that their depth has a limit.",
                    hint="Send the documents in fewer envelopes.",
                )
            values, holders = _opened(schema, one.element, closed, positions)
            inherited = {**one.inherited, **values}
            inside += [_Found(child, inherited) for holder in holders for child in _children(schema, holder)]
        found = inside
        if all(one.is_document for one in found):
            break
    return found


def _opened(
    schema: Schema, element: etree._Element, closed: SelfClosed, positions: _Positions
) -> tuple[Mapping[str, Value], Sequence[etree._Element]]:
    """What an envelope gives to its documents, and the elements of the interchange that hold them."""
    # Paths begin at the root, and an envelope inside of another is not the root of anything but itself.
    alone = element if element.getparent() is None else read_tree(write_document(element))
    values = schema_promotion(schema).values(alone, _closed_in(closed, alone, positions.first(element)))
    places = _body(schema, alone)
    if alone is element:
        return values, places
    wanted = set(places)
    same = {place: own for place, own in zip(alone.iter("*"), element.iter("*"), strict=True) if place in wanted}
    return values, [same[place] for place in places]


def _children(schema: Schema, holder: etree._Element) -> Iterator[etree._Element]:
    if any(text and text.strip() for text in (holder.text, *(child.tail for child in holder))):
        raise PipelineFailure(
            f"The body of the envelope {schema.message_type!r} has text between its documents.",
            why="The documents of an envelope are elements; this text would be lost.",
            hint="Correct the envelope, or the body_xpath of its schema.",
        )
    return holder.iterchildren(tag=etree.Element)


def _body(schema: Schema, envelope: etree._Element) -> list[etree._Element]:
    assert schema.body is not None, "an envelope without a body has a problem, and is not run"
    selected: Any = compile_path(schema.body, {})(envelope.getroottree())
    if not selected:
        raise PipelineFailure(
            f"The envelope {schema.message_type!r} has no body.",
            why=f"{schema.body} selects nothing in it.",
            hint="Send an envelope of the expected form, or correct the body_xpath of its schema.",
        )
    return list(selected)


def _schema_of(pipeline: XmlReceive, root: etree._Element) -> Schema | None:
    """The schema of a document; None for one that may be unrecognised (TYP-03)."""
    message_type = message_type_of(root)
    schema = pipeline.schemas.find(message_type)
    if schema is None and not pipeline.allow_unrecognized:
        raise PipelineFailure(
            f"There is no schema for the message type {message_type!r}.",
            why="This pipeline takes only messages whose schemas it has.",
            hint="Add the schema to the application, or set allow_unrecognized.",
        )
    return schema


class _Positions:
    """Where some elements stand among all those of the interchange, if anybody asks. Only these are held: each element
    that Python knows of takes more memory than libxml2 needs for it."""

    def __init__(self, root: etree._Element, found: Sequence[_Found]) -> None:
        self._root = root
        self._found = found

    def first(self, element: etree._Element) -> Callable[[], int]:
        return lambda: self._of[element]

    @cached_property
    def _of(self) -> Mapping[etree._Element, int]:
        wanted = {one.element for one in self._found}
        return {element: position for position, element in enumerate(self._root.iter("*")) if element in wanted}


def _closed_in(closed: SelfClosed, root: etree._Element, first: Callable[[], int]) -> IsSelfClosed:
    """For a document whose root is the element at the position ``first`` of the interchange."""

    def is_self_closed(element: etree._Element) -> bool:
        inside = next(index for index, one in enumerate(root.iter("*")) if one is element)
        return closed.has(first() + inside)

    return is_self_closed


def _add(
    rows: Rows,
    pipeline: XmlReceive,
    number: int,
    body: bytes,
    root: etree._Element,
    values: Mapping[str, Value],
    offset: int,
) -> None:
    columns = [values.get(prop.key) for prop in pipeline.promotes]
    rows.add(number, body, columns, offset=offset, message_type=message_type_of(root), root=root)
