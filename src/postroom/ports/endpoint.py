"""What receive locations and send ports have in common: definitions that are stored as JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self, TypeVar

from postroom.errors import DefinitionError
from postroom.maps.port_maps import PortMaps, load_maps

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A stored receive location or send port. Each part of its definition is parsed once, at its first use.

    A part that this version cannot parse raises an error where it is used, and does not affect other endpoints. Only
    the stored JSON is pickled: a Spark task parses it again in its worker.
    """

    what: ClassVar[str]

    name: str
    definition: dict[str, Any]
    """The stored definition. The adapter has only its kind for logins that may not read its settings."""
    uri: str

    def replace_settings(self, **settings: Any) -> Self:
        """Return the endpoint with other stored settings."""
        return replace(self, definition={**self.definition, **settings})

    @property
    def port_definition(self) -> dict[str, Any]:
        """The stored definition of the port, which has the maps, and processes the responses."""
        return self.definition

    @property
    def adapter_json(self) -> dict[str, Any]:
        stored: dict[str, Any] = self.definition["adapter"]
        return stored

    @property
    def adapter_kind(self) -> str:
        return str(self.adapter_json.get("kind", ""))

    @cached_property
    def has_maps(self) -> bool:
        return bool(self.port_definition["maps"].get("maps"))

    @cached_property
    def maps(self) -> PortMaps:
        return self._parse(load_maps, self.port_definition["maps"])

    @property
    def is_two_way(self) -> bool:
        return bool(self.port_definition["two_way"])

    @cached_property
    def response_maps(self) -> PortMaps:
        return self._parse(load_maps, self.port_definition["response_maps"])

    def _parse(self, load: Callable[[dict[str, Any]], _T], stored: dict[str, Any]) -> _T:
        try:
            return load(stored)
        except DefinitionError as error:
            what = f"The stored definition of the {self.what} {self.name!r} cannot be read."
            raise DefinitionError(what, why=f"{error.what} {error.why}".rstrip(), hint=error.hint) from None

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}
