"""The public names of a package as text: signatures, methods and attributes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import ModuleType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin


def describe_module(module: ModuleType) -> str:
    """Return one line for each public name of a module, and one for each public member of a class."""
    lines = [f"# {module.__name__}"]
    for name in sorted(module.__all__):
        lines += _describe(name, getattr(module, name), module)
    return "\n".join(lines) + "\n"


def _describe(name: str, value: Any, module: ModuleType) -> Iterator[str]:
    if inspect.ismodule(value):
        yield f"module {name}"
    elif inspect.isclass(value):
        listed = [base for base in value.__mro__[1:] if getattr(module, base.__name__, None) is base]
        base = f" of {listed[0].__name__}" if listed else ""
        yield f"class {name}{_signature(value)}{base}"
        yield from _members(value, listed)
    elif callable(value) and get_origin(value) is None:
        yield f"def {name}{_signature(value)}"
    elif isinstance(value, UnionType):
        yield f"{name} = {_annotation(value)}"
    else:
        yield f"{name}: {type(value).__name__}"


def _members(described: type, listed: list[type]) -> Iterator[str]:
    """Yield the members of a class and of its base classes that are not listed."""
    found: set[str] = set()
    for owner in described.__mro__:
        if owner.__module__.startswith("postroom.") and not any(issubclass(base, owner) for base in listed):
            found |= {*vars(owner), *vars(owner).get("__annotations__", {})}
    for name in sorted(found):
        if name.startswith(("_", "model_")):
            continue
        value = inspect.getattr_static(described, name, None)
        if isinstance(value, classmethod | staticmethod):
            yield f"    {type(value).__name__} {name}{_signature(value.__func__)}"
        elif inspect.isfunction(value):
            yield f"    def {name}{_signature(value)}"
        elif isinstance(value, property):
            yield f"    property {name}"
        else:
            yield f"    {name}"


class _Written:
    """An annotation that a signature shows without quotes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _signature(value: Any) -> str:
    signature = inspect.signature(value)

    def written(annotation: Any) -> Any:
        return annotation if annotation is inspect.Signature.empty else _Written(_annotation(annotation))

    parameters = [each.replace(annotation=written(each.annotation)) for each in signature.parameters.values()]
    text = str(signature.replace(parameters=parameters, return_annotation=written(signature.return_annotation)))
    return re.sub(r"<(?:function|class) '?(?:\w+\.)*(\w+)'?(?: at 0x[0-9a-f]+)?>", r"\1", text)


def _annotation(annotation: Any) -> str:
    """Return the annotation as written in the source, from its text or its type."""
    if isinstance(annotation, str):
        return annotation
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _annotation(arguments[0])
    if origin in (Union, UnionType):
        return " | ".join(map(_annotation, arguments))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if annotation in (None, type(None)):
        return "None"
    if annotation is ...:
        return "..."
    name = str(getattr(origin or annotation, "__name__", annotation))
    return f"{name}[{', '.join(map(_annotation, arguments))}]" if arguments else name
