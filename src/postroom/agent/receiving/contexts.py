"""The stored contexts of a whole batch at once: what all its messages share is encoded once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from postroom.message import Context, predicates_to_json
from postroom.messagebox.stored_values import plain_text
from postroom.namespaces import is_distinguished
from postroom.values import Value, value_to_json


def stored_contexts(shared: Sequence[Context], columns: Mapping[str, pa.Array], rows: int) -> list[bytes]:
    """One stored context (see ``Context.to_json``) per row: the row's shared context, and its column values promoted,
    those of distinguished fields written.

    ``shared`` has one context per row; rows of one interchange hold the same object."""
    texts = _joined([_fragments(key, column) for key, column in columns.items() if not is_distinguished(key)], rows)
    written = _joined([_fragments(key, column) for key, column in columns.items() if is_distinguished(key)], rows)
    heads: dict[int, _Frame] = {}
    encoded: list[bytes] = []
    for context, text, more in zip(shared, texts, written, strict=True):
        frame = heads.get(id(context))
        if frame is None:
            frame = heads[id(context)] = _frame(context)
        # Every fragment brings its own leading comma, and only a received message's promoted values are never empty.
        own = more if frame.has_written else more[1:]
        encoded.append(f"{frame.before}{text}{frame.between}{own}{frame.after}".encode())
    return encoded


def _joined(fragments: Sequence[Iterable[str]], rows: int) -> Iterable[str]:
    match fragments:
        case []:
            return [""] * rows
        case [only]:
            return only
        case _:
            return map("".join, zip(*fragments, strict=True))


@dataclass(frozen=True, kw_only=True)
class _Frame:
    """What stands around a row's own values: the promoted ones, then the written ones."""

    before: str
    between: str
    after: str
    has_written: bool


def _frame(context: Context) -> _Frame:
    promoted = ",".join(f"{json.dumps(key)}:{_text(value)}" for key, value in context.promoted.items())
    written = ",".join(f"{json.dumps(key)}:{_text(value)}" for key, value in context.written.items())
    assert promoted, "a received message always has promoted system properties"
    required = f',"predicates":{json.dumps(predicates_to_json(context.predicates))}' if context.predicates else ""
    return _Frame(
        before=f'\x01{{"promoted":{{{promoted}',
        between=f'}},"written":{{{written}',
        after=f"}}{required}}}",
        has_written=bool(written),
    )


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


def snapshot(shared: Context, columns: Mapping[str, pa.Array], row: int) -> Context:
    """The context of one row of a batch, promoted flags and all."""
    # A Decimal without the trailing zeros that an Arrow column of fixed scale adds.
    own = {key: column[row].as_py() for key, column in columns.items()}
    values = {key: Decimal(plain_text(value)) if isinstance(value, Decimal) else value for key, value in own.items()}
    there = {key: value for key, value in values.items() if value is not None}
    return Context(
        {**shared.promoted, **{key: value for key, value in there.items() if not is_distinguished(key)}},
        {**shared.written, **{key: value for key, value in there.items() if is_distinguished(key)}},
        shared.predicates,
    )
