"""Finds out whether an orchestration can answer requests. The callers of one that can get a fault if it fails."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

from postroom.application.checks.orchestration_code import is_library
from postroom.orchestrations.actions import start
from postroom.orchestrations.correlation import PartnerPort, reply_port
from postroom.orchestrations.definition import Orchestration


def can_answer(function: Callable[..., Any]) -> bool:
    """Return True if the code of an orchestration, or code of its application that it uses, refers to ``reply_port``,
    or to what sends a request on to another orchestration: ``start``, or a partner port."""
    pending, seen = [function], set[Callable[..., Any]]()
    while pending:
        one = inspect.unwrap(pending.pop())
        if one in seen or not isinstance(one, types.FunctionType) or is_library(one):
            continue
        seen.add(one)
        for value in _list_values(one):
            if value is reply_port or value is start or value is PartnerPort or isinstance(value, PartnerPort):
                return True
            if isinstance(value, Orchestration):
                pending.append(value.function)
            elif isinstance(value, type):
                pending += [member for member in vars(value).values() if isinstance(member, types.FunctionType)]
            elif isinstance(value, types.FunctionType):
                pending.append(value)
    return False


def _list_values(function: types.FunctionType) -> Iterator[Any]:
    """Yield what the names stand for that the code of a function uses, also as attributes of modules."""
    known = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    for code in _list_code(function.__code__):
        names = {*code.co_names, *code.co_freevars}
        for name in names & known.keys():
            value = known[name]
            yield value
            if isinstance(value, types.ModuleType):
                yield from (getattr(value, attribute) for attribute in names if hasattr(value, attribute))
        # Imported inside the function.
        yield from (value for value in (reply_port, start, PartnerPort) if value.__name__ in names - known.keys())


def _list_code(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield the code of a function and of those inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _list_code(constant)
