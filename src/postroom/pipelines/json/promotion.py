"""Promotion from JSON: only the promoted paths are decoded, the rest is checked and skipped.

There are two decoders for the same paths. The exact one leaves each promoted value as its text and gives it to
``promote_json``, which is the specification of what is accepted and says why something is not. The fast one has
msgspec decode many documents straight into the right types; a document that it refuses, or that has a value outside
its domain, goes to the exact one, so that both give the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa

from postroom.errors import BadValue, PipelineFailure
from postroom.pipelines.json.column import DECODED_TYPES, column_maker, in_domain
from postroom.pipelines.json.failure import malformed
from postroom.pipelines.json.path import keys_of
from postroom.pipelines.promote import promote_json
from postroom.pipelines.promotions import Promotions
from postroom.values import Value, ValueType

Values = tuple[Value | None, ...]
Path = tuple[str, ...]
Tree = dict[str, "Tree | None"]

#: What may be raised for a document: malformed, of the wrong type, not UTF-8, a number out of range, too deep.
_REFUSALS = (msgspec.MsgspecError, ValueError, TypeError, ArithmeticError, RecursionError, BadValue)


@lru_cache(maxsize=256)
def json_promotion(promotions: Promotions) -> JsonPromotion:
    """The compiled form; compiling takes longer than reading a document."""
    return JsonPromotion(promotions)


class JsonPromotion:
    """Reads the promoted values out of documents, in the order of the promotions."""

    def __init__(self, promotions: Promotions) -> None:
        paths = [_keys(path) for _, path in promotions.entries]
        tree = _tree(paths)
        types: dict[Path, set[ValueType]] = {path: set() for path in paths}
        for prop, path in zip(promotions.properties, paths, strict=True):
            types[path].add(prop.value_type)
        getters = [_getter(tree, path) for path in paths]
        self._promotes = promotions.properties
        self._exact = msgspec.json.Decoder(_struct(tree, lambda path: (msgspec.Raw, msgspec.Raw(b"null"))))
        self._exact_columns = [(prop, path, get) for (prop, path), get in zip(promotions.entries, getters, strict=True)]
        # One path for properties of several types cannot be decoded into all of them.
        self._has_fast_way = all(len(kinds) == 1 for kinds in types.values())
        fast = _struct(tree, lambda path: (DECODED_TYPES[min(types[path])], None))
        self._fast = msgspec.json.Decoder(fast, float_hook=Decimal)
        self._fast_columns = [
            (prop.value_type, get, column_maker(prop.value_type))
            for prop, get in zip(promotions.properties, getters, strict=True)
        ]

    def read(self, documents: Sequence[bytes]) -> tuple[list[pa.Array], dict[int, PipelineFailure]]:
        """A column per property for the good documents, and why the others are not, by position."""
        decoded, suspects = self._decode(documents)
        columns = [[get(document) for document in decoded] for _, get, _ in self._fast_columns]
        arrays = []
        for values, (value_type, _, make) in zip(columns, self._fast_columns, strict=True):
            try:
                arrays.append(make(values))
            except _REFUSALS:
                suspects.update(i for i, value in enumerate(values) if not in_domain(value_type, value))
        if not suspects:
            assert len(arrays) == len(columns), "a column was refused for values that are all in their domain"
            return arrays, {}
        failures = self._read_exactly(documents, suspects, columns)
        good = [position for position in range(len(documents)) if position not in failures]
        return [
            make([values[position] for position in good])
            for values, (_, _, make) in zip(columns, self._fast_columns, strict=True)
        ], failures

    def values(self, document: bytes) -> Values:
        """The promoted values of one document, None where there is none; PipelineFailure says what is wrong with it."""
        try:
            document.decode()
            decoded = self._exact.decode(document)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise malformed(document, error) from None
        values = []
        for prop, path, get in self._exact_columns:
            token = get(decoded)
            values.append(None if token is None else promote_json(prop, bytes(token), path=path))
        return tuple(values)

    def _decode(self, documents: Sequence[bytes]) -> tuple[list[Any], set[int]]:
        """Each document decoded, and the positions of those that were refused; an empty one stands in for them."""
        decode = self._fast.decode
        stand_in = decode(b"{}")
        if not self._has_fast_way:
            return [stand_in] * len(documents), set(range(len(documents)))
        decoded = []
        suspects = set()
        for document in documents:
            try:
                # msgspec checks the syntax of what it skips, but not that it is UTF-8.
                if not document.isascii():
                    document.decode()
                decoded.append(decode(document))
            except _REFUSALS:
                suspects.add(len(decoded))
                decoded.append(stand_in)
        return decoded, suspects

    def _read_exactly(
        self, documents: Sequence[bytes], positions: Iterable[int], columns: list[list[Value | None]]
    ) -> dict[int, PipelineFailure]:
        """Puts the values of some documents into the columns; gives the failures of those that have none."""
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


def _keys(path: str) -> Path:
    keys = keys_of(path)
    assert keys is not None, f"{path!r}: a definition with problems was run"
    return keys


def _tree(paths: list[Path]) -> Tree:
    root: Tree = {}
    for path in paths:
        node = root
        for key in path[:-1]:
            inner = node.setdefault(key, {})
            assert inner is not None, f"{path!r}: a definition with problems was run"
            node = inner
        node[path[-1]] = None
    return root


def _struct(tree: Tree, leaf: Callable[[Path], tuple[Any, Any]], outer: Path = ()) -> Any:
    """A msgspec struct for the objects that the paths run through; without paths any JSON value will do."""
    if not tree:
        return msgspec.Raw
    fields = []
    for position, (key, inner) in enumerate(tree.items()):
        path = (*outer, key)
        kind, default = leaf(path) if inner is None else (_struct(inner, leaf, path) | None, None)
        fields.append((f"f{position}", kind, msgspec.field(name=key, default=default)))
    return msgspec.defstruct("Document", fields, gc=False)


def _getter(tree: Tree, path: Path) -> Callable[[Any], Any]:
    """Reads the leaf at ``path`` from a struct made of ``tree``; None where the way to it ends early."""
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
