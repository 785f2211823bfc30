"""Finds code whose result depends on the order of a set.

The order of strings and objects in a set differs between processes. Only what is certainly a set is found: a literal,
a comprehension, ``set(...)``, an operation on sets, a variable that has no other values, a global set, and the results
of ``asyncio.wait``.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

_METHODS = {"union", "intersection", "difference", "symmetric_difference", "copy"}
#: Functions that use the values in the order in which they get them.
_ORDERED = {"list", "tuple", "iter", "enumerate", "zip", "map", "filter", "join", "fromkeys", "extend"}
#: Functions whose result does not depend on the order.
_UNORDERED = {"sorted", "set", "frozenset", "len", "sum", "min", "max", "any", "all"}

IsWait = Callable[[ast.Call], bool]


def find_iterated_sets(nodes: Sequence[ast.AST], is_wait: IsWait, global_sets: Collection[str]) -> Iterator[ast.expr]:
    """Yield each set that is iterated where the order matters. ``is_wait`` tells whether a call is one of
    ``asyncio.wait``. ``global_sets`` are the names of sets outside of the function."""
    known = _find_variables(nodes, is_wait).union(global_sets)
    harmless = {
        id(argument)
        for node in nodes
        if isinstance(node, ast.Call) and _get_name(node.func) in _UNORDERED
        for argument in node.args
    }
    for node in nodes:
        for iterated in _list_iterated(node, harmless):
            if _is_set(iterated, known) and not _has_only_numbers(iterated):
                yield iterated


def _list_iterated(node: ast.AST, harmless: Collection[int]) -> Iterator[ast.expr]:
    """Yield the expressions that a node iterates."""
    match node:
        case ast.For(iter=iterated) | ast.Starred(value=iterated) | ast.YieldFrom(value=iterated):
            yield iterated
        case ast.ListComp() | ast.DictComp() | ast.GeneratorExp() if id(node) not in harmless:
            yield from (generator.iter for generator in node.generators)
        case ast.Call(func=ast.Attribute(value=owner, attr="pop"), args=[]):
            yield owner
        case ast.Call() if _get_name(node.func) in _ORDERED and id(node) not in harmless:
            yield from node.args


def _find_variables(nodes: Sequence[ast.AST], is_wait: IsWait) -> set[str]:
    """Return the variables to which only sets are assigned."""
    all_assigned = Counter(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    sets = Counter[str]()
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Await(value=ast.Call() as call)):
                sets.update(_list_names(targets) if is_wait(call) else ())
            case ast.Assign(targets=targets, value=value) if _is_set(value, sets):
                sets.update(_list_names(targets))
            case ast.AnnAssign(target=target, value=ast.expr() as value) if _is_set(value, sets):
                sets.update(_list_names([target]))
            case ast.AugAssign(target=target):  # it stays a set
                sets.update(name for name in _list_names([target]) if name in sets)
    return {name for name, number in sets.items() if number == all_assigned[name]}


def _list_names(targets: Sequence[ast.expr]) -> list[str]:
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _is_set(node: ast.expr, variables: Collection[str]) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Name(id=name):
            return name in variables
        case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right=right):
            return _is_set(left, variables) or _is_set(right, variables)
        case ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.Call(func=ast.Attribute(value=owner, attr=method)) if method in _METHODS:
            return _is_set(owner, variables)
    return False


def _has_only_numbers(node: ast.expr) -> bool:
    """Return True if the order of a set is the same in every process."""
    return isinstance(node, ast.Set) and all(
        isinstance(one, ast.Constant) and isinstance(one.value, int | float) for one in node.elts
    )


def _get_name(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
