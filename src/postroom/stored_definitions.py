"""The values that a user declares, and how they are read from their stored JSON. Errors name the wrong fields and never
repeat their values, which may be passwords."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, TypeAdapter, ValidationError, ValidationInfo
from pydantic.fields import FieldInfo

from postroom.errors import BadValue, DefinitionError

_T = TypeVar("_T")
_Given = TypeVar("_Given")
_Stored = TypeVar("_Stored")

_MAX_DEPTH = 100

#: The context of a validation that reads stored JSON, and not what a user has written.
_STORED = {"is_stored": True}


class Converted(Generic[_Given, _Stored]):
    """The type of a field whose argument has another type: ``_Given`` is converted to ``_Stored``.

    Type checkers read it as a descriptor. Pydantic validates ``_Stored``, which converts.
    """

    if TYPE_CHECKING:

        def __get__(self, instance: object, owner: object = None) -> _Stored: ...
        def __set__(self, instance: object, value: _Given) -> None: ...

    else:

        def __class_getitem__(cls, types: tuple[Any, Any]) -> Any:
            return Annotated[types[1], _Argument(types[0])]


@dataclass(frozen=True)
class _Argument:
    """The type of an argument, for the signature."""

    type: Any


def _to_text(path: object) -> object:
    return os.fspath(path) if isinstance(path, os.PathLike) else path


def _to_seconds(duration: object) -> object:
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


#: The path of a file or folder, stored as text.
TextPath = Converted[str | os.PathLike[str], Annotated[str, BeforeValidator(_to_text)]]
TextPaths = Converted[Sequence[str | os.PathLike[str]], tuple[Annotated[str, BeforeValidator(_to_text)], ...]]
OptionalPath = Converted[str | os.PathLike[str] | None, Annotated[str | None, BeforeValidator(_to_text)]]
#: A duration, stored as a number of seconds.
Seconds = Converted[float | timedelta, Annotated[float, BeforeValidator(_to_seconds)]]


class DeclaredValue(BaseModel):
    """A frozen value that a user declares by calling its class.

    The fields are the arguments. A field with ``Field(kw_only=False)`` may be given by its position. Type checkers know
    both. The default of a ``Converted`` field needs ``Field(default=..., validate_default=True)``, because it has the
    type of the argument.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_by_name=True)

    #: The module that users write before the name of the class.
    _declared_in: ClassVar[str] = ""

    if not TYPE_CHECKING:

        def __init__(self, *positional: Any, **named: Any) -> None:
            names = [name for name, field in type(self).model_fields.items() if field.kw_only is False]
            if len(positional) > len(names):
                raise TypeError(f"{type(self).__name__} takes {len(names)} positional arguments, not {len(positional)}")
            try:
                super().__init__(**dict(zip(names, positional, strict=False)), **named)
            except ValidationError as error:
                raise DefinitionError(self._describe_error(error)) from None
            except BadValue as error:
                raise DefinitionError(f"{self._refusal()}: {error.what}", hint=error.hint) from None

    @classmethod
    def __pydantic_init_subclass__(cls, **settings: Any) -> None:
        if cls.__init__ is DeclaredValue.__init__:
            parameters = sorted(map(_to_parameter, cls.model_fields.items()), key=lambda each: each.kind)
            cls.__signature__ = Signature(parameters, return_annotation=None)

    @classmethod
    def _refusal(cls) -> str:
        return f"{cls._declared_in}{cls.__name__} cannot be created from these arguments"

    @classmethod
    def _describe_error(cls, error: ValidationError) -> str:
        return f"{cls._refusal()}: {_wrong_fields(error)}."


def _to_parameter(item: tuple[str, FieldInfo]) -> Parameter:
    name, field = item
    return Parameter(
        field.alias or name,
        Parameter.POSITIONAL_OR_KEYWORD if field.kw_only is False else Parameter.KEYWORD_ONLY,
        default=Parameter.empty if field.is_required() else field.get_default(call_default_factory=True),
        annotation=next((each.type for each in field.metadata if isinstance(each, _Argument)), field.annotation),
    )


def read_stored(what: str, expected: TypeAdapter[_T], stored: Mapping[str, Any]) -> _T:
    """Return the definition that ``model_dump(mode="json")`` turned into ``stored``. ``what`` names it in an error."""
    try:
        _check_depth(stored)
        return expected.validate_python(dict(stored), context=_STORED)
    except ValidationError as error:
        why = _wrong_fields(error)
    except RecursionError as error:
        why = str(error)
    except (TypeError, AttributeError) as error:  # an argument is missing, not known or of another type
        why = str(error)
    raise DefinitionError(
        f"This is not a stored {what}.",
        why=why,
        hint="It may have been written by another version; apply the application again.",
    )


def _check_depth(stored: object) -> None:
    """Raise RecursionError if JSON is nested more deeply than pydantic can store it again."""
    level: list[object] = [stored]
    for _ in range(_MAX_DEPTH):
        level = [
            item
            for value in level
            if isinstance(value, Mapping | list)
            for item in (value.values() if isinstance(value, Mapping) else value)
        ]
        if not level:
            return
    raise RecursionError(f"it is nested more than {_MAX_DEPTH} levels deep")


def check_stored_objects(items: Sequence[object], info: ValidationInfo) -> None:
    """Raise ValueError if one of these stored items is no object. What a user has written is checked later."""
    if info.context is not None and any(isinstance(item, str | int | float | list | None) for item in items):
        raise ValueError("each item is an object")


def _wrong_fields(error: ValidationError) -> str:
    """Return each wrong field with what is wrong with it, without its value."""
    return "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or 'it'}: {to_reason(problem['msg'])}" for problem in error.errors()
    )


def to_reason(message: str) -> str:
    """Return the message of a validation error without the words that pydantic puts before the text of a ValueError."""
    return message.removeprefix("Value error, ")
