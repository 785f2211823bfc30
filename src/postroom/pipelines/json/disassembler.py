"""Disassembles JSON: one document, an array of documents, or one document per line.

Only the promoted paths of a document are decoded. The rest is checked and skipped. There are two decoders for the same
paths. The exact decoder leaves each promoted value as text for ``promote_json``, which defines what is accepted and
reports why a value is not. The fast decoder lets msgspec decode many documents into the right types. A document that it
rejects, or that has a value outside its domain, goes to the exact decoder, so both give the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa

from postroom.errors import BadValue, PipelineFailure
from postroom.message import FRAGMENT_SIZE, Body
from postroom.pipelines.documents.disassembled_batch import (
    BadDocument,
    BatchSize,
    DisassembledBatch,
    Document,
    add_document_number,
    build_batch,
    build_messages,
    read_whole,
)
from postroom.pipelines.documents.line_blocks import LineBlock, read_line_blocks
from postroom.pipelines.json.column import DECODED_TYPES, get_column_maker, is_in_domain
from postroom.pipelines.json.failure import UTF_8_MARK, UTF_16_MARKS, malformed_failure, utf_16_failure
from postroom.pipelines.json.path import parse_path
from postroom.pipelines.json.split import read_elements
from postroom.pipelines.promotions import Promotions, bad_value_failure
from postroom.properties import Property
from postroom.values import Value, ValueType, check_promoted, check_value, value_from_text

Values = tuple[Value | None, ...]
Path = tuple[str, ...]
Tree = dict[str, "Tree | None"]

#: The exceptions for a bad document: malformed, wrong type, not UTF-8, a number out of range, nested too deeply.
_DOCUMENT_ERRORS = (msgspec.MsgspecError, ValueError, TypeError, ArithmeticError, RecursionError, BadValue)

_NUMBERS = (ValueType.INT, ValueType.DECIMAL, ValueType.FLOAT)
_STRINGS = (ValueType.STR, ValueType.DECIMAL, ValueType.DATETIME)
_ACCEPTED = {
    ValueType.STR: "a JSON string",
    ValueType.INT: "a JSON number",
    ValueType.DECIMAL: "a JSON number or string",
    ValueType.FLOAT: "a JSON number",
    ValueType.BOOL: "true or false",
    ValueType.DATETIME: "a JSON string with a date and time, such as 2026-01-31T12:00:00Z",
}


class JsonDisassembler:
    """The disassembler of ``Json`` and ``JsonLines``. Its promotions are compiled once, because this takes longer than
    reading a document."""

    def __init__(self, promotions: Promotions, message_type: str | None, *, split: str | None = None) -> None:
        self._promotion = JsonPromotion(promotions)
        self._promotes = promotions.properties
        self._message_type = message_type
        self._split = split

    def read_interchange(self, body: Body, size: BatchSize) -> Iterator[DisassembledBatch]:
        """Yield one message whose body is the interchange, or with a split one message for each element of the
        array."""
        content = read_whole(body, "JSON document")
        if content.startswith(UTF_16_MARKS):
            raise utf_16_failure()
        document = content.removeprefix(UTF_8_MARK)
        if not document.strip():
            raise PipelineFailure(
                "The interchange is empty.",
                why="An empty interchange is not a JSON document.",
                hint="Send a JSON document.",
            )
        if self._split is not None:
            yield from self._read_array(self._split, content, size)
            return
        values = self._promotion.values(document)
        yield build_batch(self._promotes, Document(1, content, values, self._message_type))

    def read_lines(self, body: Body, size: BatchSize) -> Iterator[DisassembledBatch]:
        """Yield one message for each line that is not blank, in batches of one block of lines."""
        count = 0
        for block in read_line_blocks(body, size):
            lines = _Lines(block)
            if lines.bodies:
                yield self._read_documents(count + 1, lines.bodies, lines.offsets, lines.add_line_number)
            count += len(lines.bodies)

    def _read_array(self, split: str, content: bytes, size: BatchSize) -> Iterator[DisassembledBatch]:
        """Yield one message for each element of the array."""
        bodies: list[bytes] = []
        offsets: list[int] = []
        first_number, buffered, searched = 1, 0, 0

        def read_batch() -> DisassembledBatch:
            return self._read_documents(
                first_number,
                bodies,
                offsets,
                lambda position, failure: add_document_number(first_number + position, failure),
            )

        for body in read_elements(split, content):
            offset = 0
            if len(body) > FRAGMENT_SIZE:
                # An earlier occurrence of the same bytes is as good.
                offset = content.index(body, searched)
                searched = offset + len(body)
            bodies.append(body)
            offsets.append(offset)
            buffered += len(body)
            if len(bodies) >= size.rows or buffered >= size.bytes:
                yield read_batch()
                first_number += len(bodies)
                bodies, offsets, buffered = [], [], 0
        if bodies:
            yield read_batch()

    def _read_documents(
        self,
        first_number: int,
        bodies: Sequence[bytes],
        offsets: Sequence[int],
        add_position: Callable[[int, PipelineFailure], PipelineFailure],
    ) -> DisassembledBatch:
        """Return a batch of these documents. ``offsets`` are their positions in the interchange. ``add_position`` adds
        the position of the n-th document to its failure."""
        columns, failures = self._promotion.read(bodies)
        good = [position for position in range(len(bodies)) if position not in failures]
        messages = build_messages(
            self._promotes,
            numbers=[first_number + position for position in good],
            bodies=[bodies[position] for position in good],
            offsets=[offsets[position] for position in good],
            message_types=[self._message_type] * len(good),
            columns=columns,
        )
        bad = [
            BadDocument(number=first_number + position, body=bodies[position], failure=add_position(position, failure))
            for position, failure in failures.items()
        ]
        return DisassembledBatch(messages=messages, failures=tuple(bad))


class _Lines:
    """The documents in a block of lines: their bytes, line numbers and offsets."""

    def __init__(self, block: LineBlock) -> None:
        self.bodies: list[bytes] = []
        self.numbers: list[int] = []
        self.offsets: list[int] = []
        next_offset = block.offset
        for number, line in enumerate(block.lines, block.first_line):
            offset = next_offset
            next_offset += len(line) + 1
            if number == 1:
                if line.startswith(UTF_16_MARKS):
                    raise utf_16_failure()
                if line.startswith(UTF_8_MARK):
                    offset += len(UTF_8_MARK)
                    line = line.removeprefix(UTF_8_MARK)
            if line.endswith(b"\r"):
                line = line[:-1]
            if line and not line.isspace():
                self.bodies.append(line)
                self.numbers.append(number)
                self.offsets.append(offset)

    def add_line_number(self, position: int, failure: PipelineFailure) -> PipelineFailure:
        return PipelineFailure(f"Line {self.numbers[position]}: {failure.what}", why=failure.why, hint=failure.hint)


class JsonPromotion:
    """Reads the promoted values of documents, in the order of the promotions."""

    def __init__(self, promotions: Promotions) -> None:
        paths = [_parse_keys(path) for _, path in promotions.entries]
        tree = _build_tree(paths)
        types: dict[Path, set[ValueType]] = {path: set() for path in paths}
        for prop, path in zip(promotions.properties, paths, strict=True):
            types[path].add(prop.value_type)
        getters = [_make_getter(tree, path) for path in paths]
        self._promotes = promotions.properties
        self._exact = msgspec.json.Decoder(_define_struct(tree, lambda path: (msgspec.Raw, msgspec.Raw(b"null"))))
        self._exact_columns = [(prop, path, get) for (prop, path), get in zip(promotions.entries, getters, strict=True)]
        # The fast decoder cannot decode one path into several types.
        self._can_use_fast = all(len(kinds) == 1 for kinds in types.values())
        fast = _define_struct(tree, lambda path: (DECODED_TYPES[min(types[path])], None))
        self._fast = msgspec.json.Decoder(fast, float_hook=Decimal)
        self._fast_columns = [
            (prop.value_type, get, get_column_maker(prop.value_type))
            for prop, get in zip(promotions.properties, getters, strict=True)
        ]

    def read(self, documents: Sequence[bytes]) -> tuple[list[pa.Array], dict[int, PipelineFailure]]:
        """Return a column per property for the good documents, and the failures of the others by position."""
        decoded, suspects = self._decode(documents)
        columns = [[get(document) for document in decoded] for _, get, _ in self._fast_columns]
        arrays = []
        for values, (value_type, _, make) in zip(columns, self._fast_columns, strict=True):
            try:
                arrays.append(make(values))
            except _DOCUMENT_ERRORS:
                suspects.update(i for i, value in enumerate(values) if not is_in_domain(value_type, value))
        if not suspects:
            assert len(arrays) == len(columns), "a column was rejected although all values are in their domain"
            return arrays, {}
        failures = self._read_exactly(documents, suspects, columns)
        good = [position for position in range(len(documents)) if position not in failures]
        return [
            make([values[position] for position in good])
            for values, (_, _, make) in zip(columns, self._fast_columns, strict=True)
        ], failures

    def values(self, document: bytes) -> Values:
        """Return the promoted values of one document, None for absent ones. Raises PipelineFailure for a bad
        document."""
        try:
            document.decode()
            decoded = self._exact.decode(document)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise malformed_failure(document, error) from None
        values = []
        for prop, path, get in self._exact_columns:
            token = get(decoded)
            values.append(None if token is None else promote_json(prop, bytes(token), path=path))
        return tuple(values)

    def _decode(self, documents: Sequence[bytes]) -> tuple[list[Any], set[int]]:
        """Decode the documents. Return them and the positions of the rejected ones, which are replaced by empty
        documents."""
        decode = self._fast.decode
        placeholder = decode(b"{}")
        if not self._can_use_fast:
            return [placeholder] * len(documents), set(range(len(documents)))
        decoded = []
        suspects = set()
        for document in documents:
            try:
                # msgspec checks the syntax of what it skips, but not that it is UTF-8.
                if not document.isascii():
                    document.decode()
                decoded.append(decode(document))
            except _DOCUMENT_ERRORS:
                suspects.add(len(decoded))
                decoded.append(placeholder)
        return decoded, suspects

    def _read_exactly(
        self, documents: Sequence[bytes], positions: Iterable[int], columns: list[list[Value | None]]
    ) -> dict[int, PipelineFailure]:
        """Put the values of some documents into the columns. Return the failures of the bad documents."""
        failures = {}
        for position in sorted(positions):
            try:
                values = self.values(documents[position])
            except PipelineFailure as failure:
                failures[position] = failure
            else:
                for column, value in zip(columns, values, strict=True):
                    column[position] = value
        return failures


def _parse_keys(path: str) -> Path:
    keys = parse_path(path)
    assert keys is not None, f"{path!r}: a definition with problems was run"
    return keys


def _build_tree(paths: list[Path]) -> Tree:
    root: Tree = {}
    for path in paths:
        node = root
        for key in path[:-1]:
            inner = node.setdefault(key, {})
            assert inner is not None, f"{path!r}: a definition with problems was run"
            node = inner
        node[path[-1]] = None
    return root


def _define_struct(tree: Tree, leaf: Callable[[Path], tuple[Any, Any]], outer: Path = ()) -> Any:
    """Define a msgspec struct for the objects on the paths. Without paths it accepts any JSON value."""
    if not tree:
        return msgspec.Raw
    fields = []
    for position, (key, inner) in enumerate(tree.items()):
        path = (*outer, key)
        kind, default = leaf(path) if inner is None else (_define_struct(inner, leaf, path) | None, None)
        fields.append((f"f{position}", kind, msgspec.field(name=key, default=default)))
    return msgspec.defstruct("Document", fields, gc=False)


def _make_getter(tree: Tree, path: Path) -> Callable[[Any], Any]:
    """Return a function that reads the leaf at ``path`` from a struct. It returns None if an object on the path is
    absent."""
    names = []
    node: Tree | None = tree
    for key in path:
        assert node is not None
        names.append(f"f{list(node).index(key)}")
        node = node[key]
    if len(names) == 1:
        return attrgetter(names[0])

    def get(decoded: Any) -> Any:
        for name in names:
            decoded = getattr(decoded, name)
            if decoded is None:
                return None
        return decoded

    return get


def promote_json(prop: Property, token: bytes, *, path: str) -> Value | None:
    """Convert a JSON value, given as its text, to the value of a property. Return None for null: not promoted."""
    try:
        return _from_json(prop.value_type, token)
    except BadValue as error:
        raise bad_value_failure(prop, path, error) from None


def _from_json(value_type: ValueType, token: bytes) -> Value | None:
    first = token[:1]
    if first == b"n":
        return None
    if first == b'"' and value_type in _STRINGS:
        text = msgspec.json.decode(token, type=str)
        return check_promoted(value_from_text(value_type, text))
    if first in b"-0123456789" and value_type in _NUMBERS:
        text = token.decode("ascii")
        is_whole = value_type is not ValueType.INT or text.removeprefix("-").isdigit()
        return value_from_text(value_type, text) if is_whole else _to_whole_number(text)
    if first in b"tf" and value_type is ValueType.BOOL:
        return first == b"t"
    shown = token.decode("utf-8", "replace")
    raise BadValue(f"{shown} is not {_ACCEPTED[value_type]}.")


def _to_whole_number(text: str) -> Value:
    """Convert a whole number that is written as 3.0 or 3e0, as some writers of JSON do."""
    number = value_from_text(ValueType.DECIMAL, text)
    assert isinstance(number, Decimal)
    if number != number.to_integral_value():
        raise BadValue(f"{text} is not a whole number.")
    return check_value(ValueType.INT, int(number))
