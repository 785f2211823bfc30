"""What receive locations and send ports have in common: definitions that are stored as JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from postroom.adapters import AdapterDefinition
from postroom.adapters.kinds import get_adapter_type
from postroom.errors import DefinitionError
from postroom.maps.port_maps import PortMaps, load_maps

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A stored receive location or send port. Its definitions are parsed once, at their first use.

    A definition that this version cannot parse raises an error where it is used, and does not affect other endpoints.
    Only the stored JSON is pickled: a Spark task parses it again in its worker.
    """

    what: ClassVar[str]

    name: str
    adapter_json: dict[str, Any]
    """Contains only the kind for logins that may not read the adapter's settings."""
    maps_json: dict[str, Any] = field(default_factory=dict)
    """The maps of the port. A receive location has the maps of its receive port."""
    response_json: dict[str, Any] | None = None
    """How responses are processed. None if the port is one-way."""

    @property
    def adapter_kind(self) -> str:
        return str(self.adapter_json.get("kind", ""))

    @cached_property
    def adapter_type(self) -> type[AdapterDefinition]:
        """The type of the adapter, which is known without its settings."""
        return get_adapter_type(self.adapter_kind)

    @cached_property
    def has_maps(self) -> bool:
        return bool(self.maps_json.get("maps"))

    @cached_property
    def maps(self) -> PortMaps:
        return self._parse(load_maps, self.maps_json)

    @property
    def is_two_way(self) -> bool:
        return self.response_json is not None

    @cached_property
    def response_maps(self) -> PortMaps:
        """The maps of responses, if the port is two-way."""
        return self._parse(load_maps, (self.response_json or {}).get("maps", {}))

    def _parse(self, load: Callable[[dict[str, Any]], _T], stored: dict[str, Any]) -> _T:
        try:
            return load(stored)
        except DefinitionError as error:
            what = f"The stored definition of the {self.what} {self.name!r} cannot be read."
            raise DefinitionError(what, why=f"{error.what} {error.why}".rstrip(), hint=error.hint) from None

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}
