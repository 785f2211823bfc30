"""The stored contexts of a whole batch at once: what all its messages share is encoded once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from postroom.message import Context, predicates_to_json
from postroom.messagebox.stored_values import plain_text
from postroom.values import Value, value_to_json


def stored_contexts(shared: Sequence[Context], columns: Mapping[str, pa.Array], rows: int) -> list[bytes]:
    """One stored context (see ``Context.to_json``) per row: the row's shared context, and its column values promoted.

    ``shared`` has one context per row; rows of one interchange hold the same object."""
    fragments = [_fragments(key, column) for key, column in columns.items()]
    texts = _joined(fragments, rows)
    heads: dict[int, tuple[str, str]] = {}
    encoded: list[bytes] = []
    for context, text in zip(shared, texts, strict=True):
        ends = heads.get(id(context))
        if ends is None:
            ends = heads[id(context)] = _ends(context)
        encoded.append(f"{ends[0]}{text}{ends[1]}".encode())
    return encoded


def _joined(fragments: Sequence[Iterable[str]], rows: int) -> Iterable[str]:
    match fragments:
        case []:
            return [""] * rows
        case [only]:
            return only
        case _:
            return map("".join, zip(*fragments, strict=True))


def _ends(context: Context) -> tuple[str, str]:
    """What stands before and after a row's own promoted values. Every fragment brings its own leading comma, so the
    shared promoted values come first; there always are some on a received message."""
    promoted = ",".join(f"{json.dumps(key)}:{_text(value)}" for key, value in context.promoted.items())
    written = ",".join(f"{json.dumps(key)}:{_text(value)}" for key, value in context.written.items())
    assert promoted, "a received message always has promoted system properties"
    required = f',"predicates":{json.dumps(predicates_to_json(context.predicates))}' if context.predicates else ""
    return f'\x01{{"promoted":{{{promoted}', f'}},"written":{{{written}}}{required}}}'


def _fragments(key: str, column: pa.Array) -> list[str]:
    """A column's values as ``,"key":value``; nothing where there is no value."""
    lead = f",{json.dumps(key)}:"
    values = column.to_pylist()
    if pa.types.is_integer(column.type):
        return [f"{lead}{value}" if value is not None else "" for value in values]
    if pa.types.is_decimal(column.type):
        return [f'{lead}{{"decimal":"{plain_text(value)}"}}' if value is not None else "" for value in values]
    # Texts, flags and times repeat: equal values are encoded once.
    known: dict[Any, str] = {None: ""}
    for value in values:
        if value not in known:
            known[value] = lead + _text(value)
    return [known[value] for value in values]


def _text(value: Value) -> str:
    return json.dumps(value_to_json(value), ensure_ascii=False)


def plain_decimal(value: Decimal) -> Decimal:
    """Without the trailing zeros that an Arrow column of fixed scale adds, and never in exponent form."""
    return Decimal(plain_text(value))
