"""Reads the source code of an orchestration: which calls cannot be replayed, such as ``time.time()``, and to which
ports it sends.

Only what is certain is found: a call whose function is known, and a name that is a constant.
"""

from __future__ import annotations

import ast
import datetime
import inspect
import os
import random
import textwrap
import time
import types
import uuid
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

from postroom.orchestrations.sending import deliver, request, send

#: The functions that send through a bound port.
_SENDING: Mapping[str, Any] = {"send": send, "deliver": deliver, "request": request}
_NOW = "orchestrations.now()"
_RANDOM = "orchestrations.random()"
#: The calls, and what to use instead.
_REPLACEMENTS: Mapping[Any, str] = {
    **dict.fromkeys((time.time, time.time_ns, time.monotonic, time.monotonic_ns, time.perf_counter), _NOW),
    **dict.fromkeys((datetime.datetime.now, datetime.datetime.utcnow, datetime.datetime.today), _NOW),
    datetime.date.today: _NOW,
    time.sleep: "await orchestrations.delay(...)",
    **dict.fromkeys((uuid.uuid1, uuid.uuid4), "orchestrations.new_id()"),
    **dict.fromkeys((random.random, random.randint, random.randrange, random.uniform, random.choice), _RANDOM),
    **dict.fromkeys((random.choices, random.sample, random.shuffle, os.urandom), _RANDOM),
}


def find_unreplayable_calls(function: Callable[..., Any]) -> Iterator[str]:
    """Yield a text for each such call in the body of a function. Functions inside it may be steps, so they may call
    everything. Nothing is yielded for a function without source code."""
    definition, names = _read_code(function)
    for call in _list_calls(definition):
        called = _resolve(call.func, names)
        if isinstance(called, Hashable) and (replacement := _REPLACEMENTS.get(called)) is not None:
            line = function.__code__.co_firstlineno + call.lineno - 1
            yield (
                f"it calls {ast.unparse(call.func)}() in line {line}, which gives another result when it is replayed; "
                f"use {replacement}, or call it in a step."
            )


def find_bound_ports(function: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    """Yield the name of each send port or group that a function sends to, and the kind of the call: send, deliver or
    request. A call that is passed on, such as a compensation, counts too."""
    definition, names = _read_code(function)
    for call in (node for node in ast.walk(definition) if isinstance(node, ast.Call)):
        called = [_resolve(node, names) for node in (call.func, *call.args[:1])]
        kind = next((kind for kind, known in _SENDING.items() if any(one is known for one in called)), None)
        to = next((keyword.value for keyword in call.keywords if keyword.arg == "to"), None)
        if kind is not None and to is not None:
            name = to.value if isinstance(to, ast.Constant) else _resolve(to, names)
            if isinstance(name, str):
                yield name, kind


def _read_code(function: Callable[..., Any]) -> tuple[ast.AST, Mapping[str, Any]]:
    """Return the definition of a function and what its global names stand for. Without source code the definition is
    empty."""
    try:
        [definition] = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[]), {}
    found = inspect.getclosurevars(function)
    return definition, {**found.builtins, **found.globals, **found.nonlocals}


def _list_calls(definition: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls in the body of a function, without those in functions inside it."""
    pending: list[ast.AST] = list(getattr(definition, "body", ()))
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(node, ast.Call):
            yield node
        pending += ast.iter_child_nodes(node)


def _resolve(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return what a name or a path of modules and classes stands for, or None. Nothing is called."""
    match node:
        case ast.Name(id=name):
            return names.get(name)
        case ast.Attribute(value=owner, attr=name):
            found = _resolve(owner, names)
            return getattr(found, name, None) if isinstance(found, types.ModuleType | type) else None
    return None
