"""Reads the source code of an orchestration: what cannot be replayed, such as ``time.time()``, and to which ports it
sends.

Only what is certain is found: a call whose function is known, and a name that is a constant. The coroutine functions
that the orchestration calls are read, too. Other functions may be steps, which may call everything.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import datetime
import inspect
import os
import random
import textwrap
import time
import types
import uuid
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from postroom.application.checks.iterated_sets import find_iterated_sets
from postroom.application.declarations import Declared
from postroom.orchestrations.actions import deliver, receive, request, send
from postroom.orchestrations.definition import Orchestration
from postroom.orchestrations.documents import (
    build_message,
    execute_receive_pipeline,
    execute_send_pipeline,
    transform,
)

#: The functions that send through a logical port.
_SENDING: Mapping[str, Any] = {"send": send, "deliver": deliver, "request": request}
#: The functions that run maps and pipelines, with the argument that declares these.
_COMPONENTS: Mapping[Any, str] = {
    transform: "maps",
    **dict.fromkeys((build_message, execute_receive_pipeline, execute_send_pipeline), "pipelines"),
}
_NOW = "orchestrations.now()"
_RANDOM = "orchestrations.random()"
_IN_ORDER = "whose order differs when it is replayed; use asyncio.TaskGroup or asyncio.gather"
#: Calls that cannot be replayed, and what to use instead. None: only a step can make the call.
_REPLACEMENTS: Mapping[Any, str | None] = {
    **dict.fromkeys((time.time, time.time_ns, time.monotonic, time.monotonic_ns, time.perf_counter), _NOW),
    **dict.fromkeys((datetime.datetime.now, datetime.datetime.utcnow, datetime.datetime.today), _NOW),
    datetime.date.today: _NOW,
    **dict.fromkeys((uuid.uuid1, uuid.uuid4), "orchestrations.new_id()"),
    **dict.fromkeys((random.random, random.randint, random.randrange, random.uniform, random.choice), _RANDOM),
    **dict.fromkeys((random.choices, random.sample, random.shuffle, os.urandom), _RANDOM),
    **dict.fromkeys((id, hash), "a value of the message"),
    **dict.fromkeys((os.getenv, os.listdir)),
}
#: Calls that a step cannot make either, and the reason.
_REASONS: Mapping[Any, str] = {
    time.sleep: "which blocks the host; use await orchestrations.delay(...)",
    **dict.fromkeys((asyncio.as_completed, asyncio.all_tasks), _IN_ORDER),
}
#: Files of these folders do not belong to the application.
_LIBRARIES = (str(Path(__file__).parents[2]), str(Path(os.__file__).parent))


@dataclass(frozen=True, kw_only=True)
class _Code:
    """The definition of a function, where it begins, and what its names stand for."""

    definition: ast.AST
    names: Mapping[str, Any]
    first_line: int
    #: Empty for the orchestration itself.
    file: str = ""

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """The body of the function, with the bodies of the coroutine functions inside it that it calls. Those that it
        only passes on may be steps."""
        nodes = list(_list_nodes(self.definition))
        pending = {node.name: node for node in nodes if isinstance(node, ast.AsyncFunctionDef)}
        for node in nodes:  # grows
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in pending:
                inner = list(_list_nodes(pending.pop(node.func.id)))
                pending |= {one.name: one for one in inner if isinstance(one, ast.AsyncFunctionDef)}
                nodes += inner
        return nodes

    def is_wait(self, call: ast.Call) -> bool:
        return _resolve(call.func, self.names) is asyncio.wait

    def describe_line(self, node: ast.expr) -> str:
        line = self.first_line + node.lineno - 1
        return f"in line {line} of {self.file}" if self.file else f"in line {line}"


def find_unreplayable_code(function: Callable[..., Any]) -> Iterator[str]:
    """Yield a text for each place that gives another result when it is replayed, or that has no effect because its
    ``await`` is missing. Nothing is yielded for a function without source code."""
    for code in _list_code(function):
        for node in code.nodes:
            if isinstance(node, ast.Call):
                called = _resolve(node.func, code.names)
                if isinstance(called, Hashable) and called in _REASONS:
                    yield f"it calls {ast.unparse(node.func)}() {code.describe_line(node)}, {_REASONS[called]}."
                elif isinstance(called, Hashable) and called in _REPLACEMENTS:
                    instead = _REPLACEMENTS[called]
                    alternatives = ["call it in a step"] if instead is None else [f"use {instead}", "call it in a step"]
                    yield _describe(code, node, f"calls {ast.unparse(node.func)}()", *alternatives)
            elif isinstance(node, ast.Attribute | ast.Name) and _resolve(node, code.names) is os.environ:
                yield _describe(code, node, f"reads {ast.unparse(node)}", "read it in a step")
        global_sets = {name for name, value in code.names.items() if isinstance(value, set | frozenset)}
        for iterated in find_iterated_sets(code.nodes, code.is_wait, global_sets):
            what = f"depends on the order of the set {ast.unparse(iterated)}"
            yield _describe(code, iterated, what, "use a list, such as your own list of tasks", "use sorted(...)")
        for call in _find_unawaited(code):
            name = ast.unparse(call.func)
            where = code.describe_line(call)
            yield f"it calls {name}() {where} without await, so nothing happens; write: await {name}()."


def find_logical_ports(function: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    """Yield the name of each logical port that a function sends to, and the kind of the call: send, deliver or
    request. A call that is passed on, such as a compensation, counts too, and so do those of the orchestrations that it
    calls, which run inside its instances."""
    for code in _list_code(function, with_orchestrations=True):
        for call in (node for node in ast.walk(code.definition) if isinstance(node, ast.Call)):
            called = [_resolve(node, code.names) for node in (call.func, *call.args[:1])]
            kind = next((kind for kind, known in _SENDING.items() if any(one is known for one in called)), None)
            to = next((keyword.value for keyword in call.keywords if keyword.arg == "to"), None)
            if kind is not None and to is not None:
                port = to.value if isinstance(to, ast.Constant) else _resolve(to, code.names)
                name = port.name if isinstance(port, Declared) else port
                if isinstance(name, str):
                    yield name, kind


def find_receives(function: Callable[..., Any]) -> Iterator[str]:
    """Yield where a function calls ``orchestrations.receive``."""
    for code in _list_code(function):
        for node in code.nodes:
            if isinstance(node, ast.Call) and _resolve(node.func, code.names) is receive:
                yield code.describe_line(node)


def find_undeclared_components(
    function: Callable[..., Any], maps: Sequence[object], pipelines: Sequence[object]
) -> Iterator[str]:
    """Yield a text for each map and pipeline that a function runs and its orchestration does not declare. They would
    not be shipped."""
    for code in _list_code(function):
        for call in (node for node in code.nodes if isinstance(node, ast.Call)):
            called = _resolve(call.func, code.names)
            argument = next((name for known, name in _COMPONENTS.items() if called is known), None)
            used = [*call.args[1:2], *(one.value for one in call.keywords if one.arg in ("map", "pipeline"))]
            if argument is None or not used:
                continue
            component = _resolve(used[0], code.names)
            declared = maps if argument == "maps" else pipelines
            if component is not None and all(component is not one for one in declared):
                name, function_name = ast.unparse(used[0]), ast.unparse(call.func)
                where = code.describe_line(call)
                yield f"it calls {function_name}() {where} with {name}, which is not in its {argument}; add it there."


def _describe(code: _Code, node: ast.expr, what: str, *alternatives: str) -> str:
    where = code.describe_line(node)
    return f"it {what} {where}, which gives another result when it is replayed; {', or '.join(alternatives)}."


def _list_code(function: Callable[..., Any], *, with_orchestrations: bool = False) -> Iterator[_Code]:
    """Yield the code of a function, and of the coroutine functions of the application that it calls. The orchestrations
    among these are checked where they are declared."""
    pending, seen = [function], set[Callable[..., Any]]()
    while pending:
        one = pending.pop()
        if one in seen:
            continue
        seen.add(one)
        code = _read_code(one, "" if one is function else Path(one.__code__.co_filename).name)
        yield code
        calls = [_resolve(node.func, code.names) for node in code.nodes if isinstance(node, ast.Call)]
        if with_orchestrations:
            calls += [one.function for one in calls if isinstance(one, Orchestration)]
        pending += [called for called in map(inspect.unwrap, filter(callable, calls)) if _is_own_coroutine(called)]


def _is_coroutine_function(function: object) -> bool:
    while isinstance(function, partial):
        function = function.func
    return callable(function) and inspect.iscoroutinefunction(inspect.unwrap(function))


def _is_own_coroutine(function: Callable[..., Any]) -> bool:
    """Return True for a coroutine function of the application. A ``partial`` of one may be of any function."""
    if not isinstance(function, types.FunctionType) or not inspect.iscoroutinefunction(function):
        return False
    return not is_library(function)


def is_library(function: types.FunctionType) -> bool:
    """Return True if a function does not belong to the application."""
    file = function.__code__.co_filename
    return "site-packages" in file or file.startswith(_LIBRARIES)


def _read_code(function: Callable[..., Any], file: str = "") -> _Code:
    """Return the code of a function. Without source code the definition is empty."""
    first_line = function.__code__.co_firstlineno
    try:
        [definition] = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, SyntaxError, ValueError):
        return _Code(definition=ast.Module(body=[], type_ignores=[]), names={}, first_line=first_line, file=file)
    known = {**vars(builtins), **function.__globals__, **inspect.getclosurevars(function).nonlocals}
    own = set(_list_own_names(definition))
    names = {name: value for name, value in known.items() if name not in own}
    return _Code(definition=definition, names=names, first_line=first_line, file=file)


def _list_own_names(definition: ast.AST) -> Iterator[str]:
    """Yield the names that a function, or one inside it, gives to something else."""
    for node in ast.walk(definition):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name


def _list_nodes(definition: ast.AST) -> Iterator[ast.AST]:
    """Yield the body of a function, without the bodies of the functions inside it."""
    pending: list[ast.AST] = list(getattr(definition, "body", ()))
    while pending:
        node = pending.pop(0)
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            pending += ast.iter_child_nodes(node)


def _find_unawaited(code: _Code) -> Iterator[ast.Call]:
    """Yield the calls of coroutine functions whose result is not used."""
    names = (node for node in ast.walk(code.definition) if isinstance(node, ast.Name))
    used = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    inner = {node.name for node in code.nodes if isinstance(node, ast.AsyncFunctionDef)}
    for node in code.nodes:
        match node:
            case ast.Expr(value=ast.Call() as call):
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if name not in used:
                pass
            case _:
                continue
        is_inner = isinstance(call.func, ast.Name) and call.func.id in inner
        if is_inner or _is_coroutine_function(_resolve(call.func, code.names)):
            yield call


def _resolve(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return what a name or a path of modules and classes stands for, or None. Nothing is called."""
    match node:
        case ast.Name(id=name):
            return names.get(name)
        case ast.Attribute(value=owner, attr=name):
            found = _resolve(owner, names)
            return getattr(found, name, None) if isinstance(found, types.ModuleType | type) else None
    return None
