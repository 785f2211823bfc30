"""Send ports, as hosts and pipelines use them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from postroom.adapters import SendDefinition, SinkDefinition
from postroom.adapters.dynamic.definition import Dynamic
from postroom.adapters.kinds import get_send_type, load_send_adapter
from postroom.application import SendPortDefinition
from postroom.application.backup_transport import TransportSettings
from postroom.application.definition import SendPortSettings
from postroom.messagebox.configuration.endpoints import read_send_port_rows, store_send_port_row
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import Connection
from postroom.pipelines import ReceivePipeline, Send, load_pipeline
from postroom.pipelines.send.definition import load_send_pipeline
from postroom.ports.endpoint import Endpoint

_Settings = TypeVar("_Settings", bound=TransportSettings)


@dataclass(frozen=True, kw_only=True)
class Transport(Endpoint):
    """How a send port sends: by its primary transport, or by its backup transport."""

    what: ClassVar[str] = "send port"

    @cached_property
    def settings(self) -> TransportSettings:
        return _select(TransportSettings, self.definition)

    @cached_property
    def adapter(self) -> SendDefinition:
        return self._parse(load_send_adapter, self.adapter_json)

    @cached_property
    def adapter_type(self) -> type[SendDefinition]:
        """The type of the adapter, which is known without its settings."""
        return get_send_type(self.adapter_kind)

    @property
    def is_dynamic(self) -> bool:
        """True if each message has its own address."""
        return issubclass(self.adapter_type, Dynamic)

    @property
    def is_sink(self) -> bool:
        """True if Spark drains the port. Hosts do not serve it."""
        return issubclass(self.adapter_type, SinkDefinition)


@dataclass(frozen=True, kw_only=True)
class SendPort(Transport):
    """A send port, which is its own primary transport."""

    port_id: uuid.UUID
    host_id: int
    transport_id: uuid.UUID
    backup_uri: str | None = None
    state: ServiceState = ServiceState.BOUND
    subscription_id: int | None = None
    """The subscription of its own filter. None if the port is not enlisted."""

    @cached_property
    def settings(self) -> SendPortSettings:
        return _select(SendPortSettings, self.definition)

    @property
    def filter(self) -> str | None:
        text: str | None = self.definition["filter"]
        return text

    @cached_property
    def backup(self) -> Transport | None:
        """Sends what the primary transport could not send."""
        if self.backup_uri is None:
            return None
        return Transport(name=self.name, definition=self.definition["backup"], uri=self.backup_uri)

    @cached_property
    def transports(self) -> tuple[Transport, ...]:
        """The primary transport, and the backup transport if there is one."""
        return (self,) if self.backup is None else (self, self.backup)

    @cached_property
    def pipeline(self) -> Send:
        return self._parse(load_send_pipeline, self.definition["pipeline"])

    @cached_property
    def receive_pipeline(self) -> ReceivePipeline:
        """The pipeline of responses, if the port is two-way."""
        return self._parse(load_pipeline, self.definition["receive_pipeline"])


def _select(settings: type[_Settings], stored: dict[str, Any]) -> _Settings:
    """Parse the settings of this type that a stored definition contains. The others have their defaults."""
    return settings.model_validate({name: stored[name] for name in settings.model_fields if name in stored})


def build_send_port(definition: SendPortDefinition, *, port_id: uuid.UUID, host_id: int, home: Path) -> SendPort:
    """Return a send port as a host reads it after its deployment. It is bound. Relative paths are relative to
    ``home``."""
    return SendPort(
        port_id=port_id,
        name=definition.name,
        host_id=host_id,
        transport_id=uuid.uuid5(port_id, "primary transport"),
        definition=definition.to_stored(),
        uri=definition.adapter.address(home),
        backup_uri=None if definition.backup is None else definition.backup.adapter.address(home),
    )


def store_send_port(connection: Connection, port: SendPort, application_id: uuid.UUID) -> SendPort:
    """Store a send port and return it as it is now. An existing port keeps its ids and its state."""
    port_id = store_send_port_row(
        connection,
        id=port.port_id,
        application_id=application_id,
        host_id=port.host_id,
        transport_id=port.transport_id,
        definition=port.definition,
        uri=port.uri,
        backup_uri=port.backup_uri,
    )
    (stored,) = read_send_ports(connection, ids=[port_id])
    return stored


def read_send_ports(
    connection: Connection, *, host_id: int | None = None, ids: Sequence[uuid.UUID] | None = None
) -> list[SendPort]:
    """Return the send ports of one host or of all hosts, by name.

    Adapters have only their kind for logins that may not read the settings.
    """
    rows = read_send_port_rows(connection, host_id=host_id, ids=ids)
    return [SendPort(**{**row, "definition": SendPortDefinition.complete(row["definition"])}) for row in rows]
