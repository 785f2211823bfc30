"""Receive locations, as hosts and pipelines use them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from psycopg.types.json import Jsonb

from postroom.adapters import File, HttpReceive, ReceiveDefinition
from postroom.adapters.contract import ReceivedBy
from postroom.adapters.kinds import get_receive_type, get_watched_folder, load_receive_adapter
from postroom.application import ReceiveLocationDefinition, ReceivePortDefinition, Schedule
from postroom.messagebox.configuration.endpoints import read_receive_location_rows, store_receive_location_row
from postroom.messagebox.connection import Connection
from postroom.pipelines import ReceivePipeline, Send, load_pipeline
from postroom.pipelines.send.definition import load_send_pipeline
from postroom.ports.endpoint import Endpoint


@dataclass(frozen=True, kw_only=True)
class ReceiveLocation(Endpoint):
    what: ClassVar[str] = "receive location"

    location_id: uuid.UUID
    port_id: uuid.UUID
    port: dict[str, Any]
    """The stored definition of its receive port."""
    host_id: int
    enabled: bool
    schedule: Schedule | None = None
    """The schedule that is declared, or that the operator has set."""

    @property
    def port_definition(self) -> dict[str, Any]:
        return self.port

    @property
    def port_name(self) -> str:
        return str(self.port["name"])

    @property
    def route_failures(self) -> bool:
        """True if failures are published instead of suspended."""
        return bool(self.port["route_failures"])

    @property
    def authentication(self) -> str:
        """What happens to unauthenticated messages: none (accept), drop, or keep (suspend)."""
        return str(self.port["authentication"])

    @cached_property
    def adapter(self) -> ReceiveDefinition:
        return self._parse(load_receive_adapter, self.adapter_json)

    @cached_property
    def adapter_type(self) -> type[ReceiveDefinition]:
        """The type of the adapter, which is known without its settings."""
        return get_receive_type(self.adapter_kind)

    @property
    def watched_folder(self) -> File | None:
        """The folder that files are claimed in, or None if the location claims no files."""
        return get_watched_folder(self.adapter)

    @property
    def is_published_on_spark(self) -> bool:
        """True if a pipeline process publishes what the location receives. Otherwise a host does."""
        return self.adapter_type.received_by is not ReceivedBy.POLLER and not self.is_two_way

    @cached_property
    def pipeline(self) -> ReceivePipeline:
        return self._parse(load_pipeline, self.definition["pipeline"])

    @cached_property
    def send_pipeline(self) -> Send:
        """The pipeline of responses, if the receive port is two-way."""
        return self._parse(load_send_pipeline, self.port["send_pipeline"])

    @property
    def response_timeout(self) -> float:
        """How many seconds the callers of a two-way location wait."""
        assert isinstance(self.adapter, HttpReceive), "plan accepts no other adapter"
        return self.adapter.response_timeout

    def receives_at(self, now: datetime) -> bool:
        """Return True if the location is enabled and inside its schedule (ORS-07, ORS-08)."""
        return self.enabled and (self.schedule is None or self.schedule.is_open(now))


def read_receive_locations(connection: Connection, *, host_id: int | None = None) -> list[ReceiveLocation]:
    """Return the receive locations of one host or of all hosts, by name.

    Adapters have only their kind for logins that may not read the settings.
    """
    return [_from_row(row) for row in read_receive_location_rows(connection, host_id=host_id)]


def find_receive_location(connection: Connection, location_id: uuid.UUID) -> ReceiveLocation | None:
    """Return the receive location with this id, if it is deployed."""
    rows = read_receive_location_rows(connection, location_id=location_id)
    return _from_row(rows[0]) if rows else None


def _from_row(row: dict[str, Any]) -> ReceiveLocation:
    completed = {
        "definition": ReceiveLocationDefinition.complete(row["definition"]),
        "port": ReceivePortDefinition.complete(row["port"]),
        "schedule": _schedule_from_json(row["schedule"]),
    }
    return ReceiveLocation(**{**row, **completed})


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
    return ReceiveLocation(
        location_id=location_id,
        name=location.name,
        definition=location.to_stored(),
        uri=location.adapter.address(home),
        port_id=port_id,
        port=port.to_stored(),
        host_id=host_id,
        enabled=location.enabled,
        schedule=location.schedule,
    )


def store_receive_location(connection: Connection, location: ReceiveLocation) -> None:
    """Store a receive location of a stored port. An existing location keeps its id, stays enabled or disabled, and
    keeps its schedule if this one has none."""
    store_receive_location_row(
        connection,
        id=location.location_id,
        port_id=location.port_id,
        host_id=location.host_id,
        definition=location.definition,
        uri=location.uri,
        enabled=location.enabled,
        schedule=schedule_to_json(location.schedule),
    )


def schedule_to_json(schedule: Schedule | None) -> Jsonb | None:
    """Return a schedule as it is stored."""
    return None if schedule is None else Jsonb(schedule.model_dump(mode="json"))


def _schedule_from_json(stored: dict[str, Any] | None) -> Schedule | None:
    """Parse a stored schedule."""
    return None if stored is None else Schedule(**stored)
