"""Send ports, as hosts and pipelines use them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from postroom.adapters import AdapterDefinition
from postroom.adapters.kinds import load_port_adapter
from postroom.application import SendPortDefinition
from postroom.application.backup_transport import TransportSettings
from postroom.application.definition import SendPortSettings
from postroom.maps.port_maps import NO_MAPS
from postroom.messagebox.configuration.endpoints import PortState, read_send_port_rows, store_send_port_row
from postroom.messagebox.connection import Connection
from postroom.pipelines import ReceivePipeline, Send, load_pipeline
from postroom.pipelines.send.definition import load_send_pipeline
from postroom.ports.endpoint import Endpoint

_NO_MAPS = NO_MAPS.model_dump(mode="json")

_Settings = TypeVar("_Settings", bound=TransportSettings)


@dataclass(frozen=True, kw_only=True)
class Transport(Endpoint):
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
    port_id = store_send_port_row(
        connection,
        id=port.port_id,
        application_id=application_id,
        host_id=port.host_id,
        name=port.name,
        transport_id=port.transport_id,
        settings=settings,
        adapter=port.adapter_json,
        uri=port.uri,
        backup_adapter=None if port.backup is None else port.backup.adapter_json,
        backup_uri=None if port.backup is None else port.backup.uri,
    )
    (stored,) = read_send_ports(connection, ids=[port_id])
    return stored


def read_send_ports(
    connection: Connection, *, host_id: int | None = None, ids: Sequence[uuid.UUID] | None = None
) -> list[SendPort]:
    """Return the send ports of one host or of all hosts, by name.

    Adapters have only their kind for logins that may not read the settings.
    """
    return [_read_send_port(**row) for row in read_send_port_rows(connection, host_id=host_id, ids=ids)]


def _read_send_port(
    *,
    name: str,
    settings: Mapping[str, Any],
    backup_adapter: dict[str, Any] | None,
    backup_uri: str | None,
    state: int,
    **columns: Any,
) -> SendPort:
    backup = None
    if backup_adapter is not None and backup_uri is not None:
        backup = Transport(
            name=name,
            adapter_json=backup_adapter,
            uri=backup_uri,
            settings=_select(TransportSettings, settings["backup"]),
        )
    return SendPort(name=name, backup=backup, state=PortState(state), **columns, **_read_settings(settings))


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
