"""A mypy plugin that compares values with the types of their properties.

A dict has one type for all its values, so mypy alone accepts ``promoted={Total: "abc"}``. Enable the plugin in the
configuration of mypy: ``plugins = ["postroom.mypy_plugin"]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mypy.errorcodes import ARG_TYPE
from mypy.nodes import DictExpr, Expression
from mypy.plugin import MethodContext, Plugin
from mypy.subtypes import is_subtype
from mypy.types import AnyType, Instance, NoneType, Type, UnionType, get_proper_type

_PROPERTY = "postroom.properties.Property"
#: The methods whose arguments are a property and a value.
_PAIRS = frozenset(f"postroom.message.Context.{name}" for name in ("promote", "write", "require"))
#: The methods with arguments that are values by property.
_DICTS = frozenset(
    {
        "postroom.message.Message.of",
        *(f"postroom.client.client.Client.{name}" for name in ("publish", "request", "start_request")),
        *(f"postroom.client.async_client.AsyncClient.{name}" for name in ("publish", "request")),
        "postroom.client.subscription.Received.reply",
        "postroom.client.async_client.AsyncReceived.reply",
    }
)


class _PropertyPlugin(Plugin):
    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        if fullname in _PAIRS:
            return lambda context: _check_values(context, _get_pair(context))
        if fullname in _DICTS:
            return lambda context: _check_values(context, _get_items(context))
        return None


def _get_pair(context: MethodContext) -> Iterator[tuple[Expression, Expression]]:
    properties, values = context.args
    yield from zip(properties, values, strict=False)


def _get_items(context: MethodContext) -> Iterator[tuple[Expression, Expression]]:
    for expressions in context.args:
        for expression in expressions:
            if isinstance(expression, DictExpr):
                yield from ((key, value) for key, value in expression.items if key is not None)


def _check_values(context: MethodContext, values: Iterator[tuple[Expression, Expression]]) -> Type:
    for prop, value in values:
        wanted = _get_value_type(context.api.get_expression_type(prop))
        given = context.api.get_expression_type(value)
        if wanted is not None and not _is_accepted(context, given, wanted):
            context.api.fail(f"The property has values of type {wanted}, and this is {given}", value, code=ARG_TYPE)
    return context.default_return_type


def _get_value_type(prop: Type) -> Type | None:
    """Return the type of the property's values. Return None if the type is unknown, or if this is not a property."""
    instance = get_proper_type(prop)
    if not isinstance(instance, Instance):
        return None
    declared = next((base for base in (instance, *instance.type.bases) if base.type.fullname == _PROPERTY), None)
    value_type = None if declared is None else get_proper_type(declared.args[0])
    return None if isinstance(value_type, AnyType) else value_type


def _is_accepted(context: MethodContext, given: Type, wanted: Type) -> bool:
    accepted: list[Type] = [wanted, NoneType()]
    if isinstance(wanted, Instance) and wanted.type.name == "Decimal":
        accepted.append(context.api.named_generic_type("builtins.int", []))
    return is_subtype(given, UnionType(accepted))


def plugin(version: str) -> type[Plugin]:
    """Return the plugin. mypy calls it with its own version."""
    return _PropertyPlugin
