"""Stores and reads receive locations and send ports, and finds those of their secrets that are missing here."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from psycopg.types.json import Jsonb

from postroom.adapters import AdapterDefinition, File, HttpReceive
from postroom.adapters.kinds import get_adapter_type, get_watched_folder, load_port_adapter, load_receive_adapter
from postroom.application import ReceiveLocationDefinition, ReceivePortDefinition, Schedule, SendPortDefinition
from postroom.application.backup_transport import TransportSettings
from postroom.application.definition import SendPortSettings
from postroom.errors import DefinitionError
from postroom.maps.port_maps import NO_MAPS, PortMaps, load_maps
from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement
from postroom.pipelines import ReceivePipeline, Send, load_pipeline
from postroom.pipelines.send.definition import load_send_pipeline
from postroom.secrets.references import find_unavailable

_NO_MAPS = NO_MAPS.model_dump(mode="json")

_T = TypeVar("_T")
_Settings = TypeVar("_Settings", bound=TransportSettings)


class PortState(IntEnum):
    """The states of a send port. A bound port has no subscription. Matches of a stopped port are suspended."""

    BOUND = 1
    STOPPED = 2
    STARTED = 3


@dataclass(frozen=True, kw_only=True)
class _Endpoint:
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


@dataclass(frozen=True, kw_only=True)
class ReceiveLocation(_Endpoint):
    what: ClassVar[str] = "receive location"

    location_id: uuid.UUID
    port_id: uuid.UUID
    port_name: str
    host_id: int
    pipeline_json: dict[str, Any]
    uri: str
    enabled: bool
    route_failures: bool = False
    """True if failures are published instead of suspended. A setting of the receive port."""
    authentication: str = "none"
    """What happens to unauthenticated messages: none (accept), drop, or keep (suspend)."""
    schedule: Schedule | None = None

    @cached_property
    def adapter(self) -> AdapterDefinition:
        return self._parse(load_receive_adapter, self.adapter_json)

    @property
    def watched_folder(self) -> File | None:
        """The folder that files are claimed in, or None if the location claims no files."""
        return get_watched_folder(self.adapter)

    @property
    def is_received_on_spark(self) -> bool:
        """True if a pipeline process publishes what the location receives. Otherwise a host does."""
        return self.adapter_type.receives_on_spark and not self.is_two_way

    @cached_property
    def pipeline(self) -> ReceivePipeline:
        return self._parse(load_pipeline, self.pipeline_json)

    @cached_property
    def send_pipeline(self) -> Send:
        """The pipeline of responses. The receive port is two-way."""
        assert self.response_json is not None
        return self._parse(load_send_pipeline, self.response_json["pipeline"])

    @property
    def response_timeout(self) -> float:
        """How many seconds the callers of a two-way location wait."""
        assert isinstance(self.adapter, HttpReceive), "plan accepts no other adapter"
        return self.adapter.response_timeout

    def receives_at(self, now: datetime) -> bool:
        """Return True if the location is enabled and inside its schedule (ORS-07, ORS-08)."""
        return self.enabled and (self.schedule is None or self.schedule.is_open(now))


@dataclass(frozen=True, kw_only=True)
class Transport(_Endpoint):
    """How a send port sends: by its primary transport, or by its backup transport."""

    what: ClassVar[str] = "send port"

    uri: str
    settings: TransportSettings

    @cached_property
    def adapter(self) -> AdapterDefinition:
        return self._parse(load_port_adapter, self.adapter_json)


@dataclass(frozen=True, kw_only=True)
class SendPort(Transport):
    """A send port, which is its own primary transport."""

    port_id: uuid.UUID
    host_id: int
    transport_id: uuid.UUID
    settings: SendPortSettings
    filter: str | None = None
    pipeline_json: dict[str, Any] = field(default_factory=dict)
    backup: Transport | None = None
    """Sends what the primary transport could not send."""
    state: PortState = PortState.BOUND
    subscription_id: int | None = None
    """The subscription of its own filter. None if the port is not enlisted."""

    @cached_property
    def transports(self) -> tuple[Transport, ...]:
        """The primary transport, and the backup transport if there is one."""
        return (self,) if self.backup is None else (self, self.backup)

    @cached_property
    def pipeline(self) -> Send:
        return self._parse(load_send_pipeline, self.pipeline_json)

    @cached_property
    def receive_pipeline(self) -> ReceivePipeline:
        """The pipeline of responses. The port is two-way."""
        assert self.response_json is not None
        return self._parse(load_pipeline, self.response_json["pipeline"])


def read_receive_locations(connection: Connection, *, host_id: int | None = None) -> list[ReceiveLocation]:
    """Return the receive locations of one host or of all hosts, by name.

    Adapters have only their kind for logins that may not read the settings.
    """
    rows = connection.execute(_with_adapter(connection, "receive_locations"), (host_id,))
    names = (
        *("location_id", "name", "port_id", "port_name", "host_id", "adapter_json", "pipeline_json", "uri"),
        *("enabled", "route_failures", "authentication", "maps_json", "response_json"),
    )
    return [
        ReceiveLocation(**dict(zip(names, row, strict=True)), schedule=schedule_from_json(stored))
        for *row, stored in rows
    ]


def build_receive_location(
    port: ReceivePortDefinition,
    location: ReceiveLocationDefinition,
    *,
    location_id: uuid.UUID,
    port_id: uuid.UUID,
    host_id: int,
    home: Path,
) -> ReceiveLocation:
    """Return a receive location as a host reads it after its deployment. Relative paths are relative to ``home``."""
    response = {
        "pipeline": port.send_pipeline.model_dump(mode="json"),
        "maps": port.response_maps.model_dump(mode="json"),
    }
    return ReceiveLocation(
        location_id=location_id,
        name=location.name,
        port_id=port_id,
        port_name=port.name,
        host_id=host_id,
        adapter_json=location.adapter.model_dump(mode="json"),
        pipeline_json=location.pipeline.model_dump(mode="json"),
        maps_json=port.maps.model_dump(mode="json"),
        response_json=response if port.two_way else None,
        uri=location.adapter.address(home),
        enabled=location.enabled,
        route_failures=port.route_failures,
        authentication=port.authentication,
        schedule=location.schedule,
    )


def store_receive_location(connection: Connection, location: ReceiveLocation) -> None:
    """Store a receive location of a stored port. An existing location keeps its id, stays enabled or disabled, and
    keeps its schedule if this one has none."""
    connection.execute(
        statement("queries/store_receive_location"),
        {
            "id": location.location_id,
            "port_id": location.port_id,
            "host_id": location.host_id,
            "name": location.name,
            "adapter": Jsonb(location.adapter_json),
            "pipeline": Jsonb(location.pipeline_json),
            "maps": Jsonb(location.maps_json),
            "response": None if location.response_json is None else Jsonb(location.response_json),
            "uri": location.uri,
            "enabled": location.enabled,
            "schedule": schedule_to_json(location.schedule),
        },
    )


def schedule_to_json(schedule: Schedule | None) -> Jsonb | None:
    """Return a schedule as it is stored."""
    return None if schedule is None else Jsonb(schedule.model_dump(mode="json"))


def schedule_from_json(stored: dict[str, Any] | None) -> Schedule | None:
    """Parse a stored schedule."""
    return None if stored is None else Schedule(**stored)


def _with_adapter(connection: Connection, table: str) -> str:
    """Return the statement that reads ports or locations. Operators get only the kinds of adapters."""
    row = connection.execute(
        "SELECT has_column_privilege(%s::text, 'adapter', 'select')", (f"management.{table}",)
    ).fetchone()
    adapter, backup = "jsonb_build_object('kind', adapter_kind)", "jsonb_build_object('kind', backup_kind)"
    if row is not None and row[0]:
        adapter, backup = "adapter", "backup_adapter"
    return statement(f"queries/read_{table}").replace("__ADAPTER__", adapter).replace("__BACKUP_ADAPTER__", backup)


def build_send_port(definition: SendPortDefinition, *, port_id: uuid.UUID, host_id: int, home: Path) -> SendPort:
    """Return a send port as a host reads it after its deployment. It is bound. Relative paths are relative to
    ``home``."""
    stored = definition.model_dump(mode="json")
    backup = definition.backup
    return SendPort(
        port_id=port_id,
        name=definition.name,
        host_id=host_id,
        transport_id=uuid.uuid5(port_id, "primary transport"),
        adapter_json=stored["adapter"],
        uri=definition.adapter.address(home),
        backup=None
        if backup is None
        else Transport(
            name=definition.name,
            adapter_json=stored["backup"]["adapter"],
            uri=backup.adapter.address(home),
            settings=_select(TransportSettings, stored["backup"]),
        ),
        **_read_settings(stored),
    )


def store_send_port(connection: Connection, port: SendPort, application_id: uuid.UUID) -> SendPort:
    """Store a send port and return it as it is now. An existing port keeps its ids, its state and its subscription."""
    settings = {
        **port.settings.model_dump(mode="json"),
        "filter": port.filter,
        "maps": port.maps_json,
        "pipeline": port.pipeline_json,
        "receive_pipeline": None if port.response_json is None else port.response_json["pipeline"],
        "response_maps": _NO_MAPS if port.response_json is None else port.response_json["maps"],
        "backup": None if port.backup is None else port.backup.settings.model_dump(mode="json"),
    }
    row = connection.execute(
        statement("queries/store_send_port"),
        {
            "id": port.port_id,
            "application_id": application_id,
            "host_id": port.host_id,
            "name": port.name,
            "transport_id": port.transport_id,
            "settings": Jsonb(settings),
            "adapter": Jsonb(port.adapter_json),
            "uri": port.uri,
            "backup_adapter": None if port.backup is None else Jsonb(port.backup.adapter_json),
            "backup_uri": None if port.backup is None else port.backup.uri,
        },
    ).fetchone()
    assert row is not None
    (stored,) = read_send_ports(connection, ids=[row[0]])
    return stored


def read_send_ports(
    connection: Connection, *, host_id: int | None = None, ids: Sequence[uuid.UUID] | None = None
) -> list[SendPort]:
    """Return the send ports of one host or of all hosts, by name.

    Adapters have only their kind for logins that may not read the settings.
    """
    rows = connection.execute(_with_adapter(connection, "send_ports"), {"host_id": host_id, "ids": ids})
    return [
        SendPort(
            port_id=port_id,
            name=name,
            host_id=host,
            transport_id=transport_id,
            adapter_json=adapter,
            uri=uri,
            backup=None
            if backup_uri is None
            else Transport(
                name=name,
                adapter_json=backup_adapter,
                uri=backup_uri,
                settings=_select(TransportSettings, settings["backup"]),
            ),
            state=PortState(state),
            subscription_id=subscription_id,
            **_read_settings(settings),
        )
        for (
            port_id,
            name,
            host,
            transport_id,
            adapter,
            uri,
            backup_adapter,
            backup_uri,
            settings,
            state,
            subscription_id,
        ) in rows
    ]


def _read_settings(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a send port that a stored definition contains. Only the plain settings are parsed."""
    return {
        "settings": _select(SendPortSettings, stored),
        "filter": stored["filter"],
        "maps_json": stored["maps"],
        "pipeline_json": stored["pipeline"],
        "response_json": {"pipeline": stored["receive_pipeline"], "maps": stored["response_maps"]}
        if stored["two_way"]
        else None,
    }


def _select(settings: type[_Settings], stored: Mapping[str, Any]) -> _Settings:
    """Parse the settings of this type that a stored definition contains."""
    return settings.model_validate({name: stored[name] for name in settings.model_fields})


def find_missing_secrets(
    connection: Connection, *, host_id: int | None = None, in_spark: bool | None = None
) -> list[str]:
    """Return a sentence for each missing secret of one host or of all hosts.

    ``in_spark`` selects what the pipelines of Spark read, or what the host instances read. None selects everything.
    A login that may not read adapters gets no sentence about them.
    """
    uses: list[tuple[str, object]] = []
    for port in read_send_ports(connection, host_id=host_id):
        if in_spark is None or port.adapter_type.is_sink == in_spark:
            adapters = [transport.adapter_json for transport in port.transports]
            uses.append((f"send port {port.name}", [*adapters, port.pipeline_json]))
    for location in read_receive_locations(connection, host_id=host_id):
        is_selected = in_spark is None or location.adapter_type.reads_rows == in_spark
        adapter = location.adapter_json if is_selected else None
        uses.append((f"receive location {location.name}", [adapter, location.pipeline_json]))
    return [f"{name}: {error.what}" for name, definition in uses for error in find_unavailable(definition)]
