"""The stored contexts of a whole batch at once: what all its messages share is encoded once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from postroom.message import Context, predicates_to_json
from postroom.messagebox.storage.stored_values import plain_text
from postroom.namespaces import is_distinguished
from postroom.values import Value, value_to_json

#: With offsets of 64 bits: the contexts of a large interchange may have more than 2 GB together.
_TEXT = pa.large_string()


def stored_contexts(shared: Sequence[Context], columns: Mapping[str, pa.Array], rows: int) -> list[bytes]:
    """One stored context (see ``Context.to_json``) per row: the row's shared context, and its column values promoted,
    those of distinguished fields written.

    ``shared`` has one context per row; rows of one interchange hold the same object."""
    distinct = {id(context): context for context in shared}
    frames = [_frame(context) for context in distinct.values()]
    number_of = {key: number for number, key in enumerate(distinct)}
    frame_of = pa.array([number_of[id(context)] for context in shared], pa.int32())

    def around(part: Callable[[_Frame], str]) -> pa.Array:
        return pa.array(map(part, frames), _TEXT).take(frame_of)

    promoted = [_fragments(key, column) for key, column in columns.items() if not is_distinguished(key)]
    written = [_fragments(key, column) for key, column in columns.items() if is_distinguished(key)]
    if written:
        own = _join(written)
        # Every fragment begins with a comma. Only the promoted values of a received message are never empty.
        has_written = pa.array([frame.has_written for frame in frames]).take(frame_of)
        written = [pc.if_else(has_written, own, pc.utf8_slice_codeunits(own, 1))]
    parts = [around(lambda one: one.before), *promoted, around(lambda one: one.between), *written]
    encoded: list[bytes] = _join([*parts, around(lambda one: one.after)]).cast(pa.large_binary()).to_pylist()
    return encoded


def _join(texts: Sequence[pa.Array]) -> pa.Array:
    return pc.binary_join_element_wise(*texts, pa.scalar("", _TEXT))


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


def _fragments(key: str, column: pa.Array) -> pa.Array:
    """A column's values as ``,"key":value``; nothing where there is no value."""
    lead = pa.scalar(f",{json.dumps(key)}:", _TEXT)
    if pa.types.is_integer(column.type):
        texts = column.cast(_TEXT)
    elif pa.types.is_decimal(column.type):
        decimals = [pa.scalar('{"decimal":"', _TEXT), _plain_texts(column), pa.scalar('"}', _TEXT)]
        texts = _join(decimals)
    else:
        # Texts, flags and times repeat: equal values are encoded once.
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        texts = pa.array(map(_text, encoded.dictionary.to_pylist()), _TEXT).take(encoded.indices)
    return pc.fill_null(_join([lead, texts]), "")


def _plain_texts(column: pa.Array) -> pa.Array:
    """Decimals without trailing zeros, and never in exponent form."""
    texts = column.cast(_TEXT)
    if column.type.scale > 0:
        texts = pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), ".")
    has_exponent = pc.fill_null(pc.match_substring(texts, "E"), False)
    if not pc.any(has_exponent).as_py():
        return texts
    # Zero and very small numbers.
    others = pa.array(map(plain_text, column.filter(has_exponent).to_pylist()), _TEXT)
    return pc.replace_with_mask(texts, has_exponent, others)


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
