"""A digest of what a step is called with, so that a replay notices if a result would go to another call.

The digest covers the arguments, and the values that the function itself holds: its defaults, the arguments of a
``partial``, the object of a method, and the variables of the functions around it, unless calls of the function may
change them. Of an object that is not plain data it covers only the type, because its contents may differ in every
process. Of large values it covers the beginning.
"""

from __future__ import annotations

import dis
import hashlib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache, partial
from types import CodeType, FunctionType, MethodType
from typing import Any

from postroom.message import Message

_DIGEST_BYTES = 8
#: How much of the arguments counts: values, levels of values inside values, and characters of a text.
_MAX_VALUES, _MAX_DEPTH, _MAX_TEXT = 1_000, 20, 10_000

#: How lists and tuples are iterated that do not run code of their own.
_PLAIN = (list.__iter__, tuple.__iter__)


def digest_call(function: Callable[..., Any], args: tuple[object, ...]) -> str:
    """Return the digest of a call, in hexadecimal. A replay in another process gets the same."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for number, text in enumerate(_describe((function, args), 0)):
        if number == _MAX_VALUES:
            break
        digest.update(text)
        digest.update(b"\0")
    return digest.hexdigest()


def _describe(value: object, depth: int) -> Iterator[bytes]:
    yield type(value).__qualname__.encode()
    if depth == _MAX_DEPTH:
        return
    match value:
        case int():
            yield hex(value).encode()  # an int may have too many digits for a decimal text
        case None | float() | Decimal() | date() | datetime() | time() | timedelta() | uuid.UUID():
            yield repr(value).encode()
        case str():
            yield str.__getitem__(value, slice(_MAX_TEXT)).encode(errors="surrogatepass")
        case bytes() | bytearray():
            yield bytes(value[:_MAX_TEXT])
        case Enum():
            yield value.name.encode()
        case Message():
            # Not its id: a message that the orchestration has built gets another one in a replay.
            yield value.context.to_json().encode()
        case _:
            for part in _list_parts(value):
                yield from _describe(part, depth + 1)


def _list_parts(value: object) -> Iterator[object]:
    """Yield the values inside a value, in an order that is the same in every process."""
    match value:
        case list() | tuple() if type(value).__iter__ in _PLAIN:
            yield from value
        case dict() if type(value).items is dict.items:
            for item in value.items():
                yield from item
        case partial():
            yield from (value.func, value.args, value.keywords)
        case MethodType():
            yield value.__func__
            yield None if _is_mutable(value.__self__) else value.__self__
        case FunctionType():
            yield value.__qualname__
            defaults = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
            yield from (default for default in defaults if not _is_mutable(default))
            yield from _list_variables(value)
        case _ if is_dataclass(value) and not isinstance(value, type):
            for field in fields(value):
                yield getattr(value, field.name, None)


def _list_variables(function: FunctionType) -> Iterator[object]:
    """Yield the variables of the functions around a function that it reads, and that its calls cannot change."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # it has no value yet
            continue
        if name not in _list_changed_variables(code) and not _is_mutable(value):
            yield value


@lru_cache(maxsize=256)
def _list_changed_variables(code: CodeType) -> frozenset[str]:
    """Return the names of the variables that a function declares with ``nonlocal`` and assigns."""
    instructions = dis.get_instructions(code)
    return frozenset(instruction.argval for instruction in instructions if instruction.opname == "STORE_DEREF")


def _is_mutable(value: object) -> bool:
    if is_dataclass(value):
        return not getattr(value, "__dataclass_params__").frozen  # noqa: B009, typeshed does not have it
    return isinstance(value, list | dict | bytearray)
