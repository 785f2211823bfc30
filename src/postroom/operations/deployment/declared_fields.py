"""The stored fields of ports and locations that follow their declaration, as declared and as deployed.

State, and whether a location is enabled, belong to the operator and are not among them.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from postroom.application import BackupTransport, ReceiveLocationDefinition, ReceivePortDefinition, SendPortDefinition
from postroom.filters.text import format_filter
from postroom.maps.port_maps import NO_MAPS
from postroom.messagebox.configuration.endpoints import ReceiveLocation, SendPort, Transport
from postroom.pipelines.send.definition import PASS_THRU_TRANSMIT

ROUTE_FAILURES = "route failures"
AUTHENTICATION = "authentication"
MAPS = "maps"
SERVICE_WINDOW = "service window"
CIRCUIT_BREAKER = "circuit breaker"
BACKUP_ADAPTER = "backup adapter"
BACKUP = ("backup uri", "backup retry count", "backup retry interval", "backup service window")
ORDERED = "ordered"
TWO_WAY = "two-way"
RECEIVE_PIPELINE, SEND_PIPELINE = "receive pipeline", "send pipeline"
RESPONSE_MAPS = "response maps"

_NO_MAPS = NO_MAPS.model_dump(mode="json")
_PASS_THRU = PASS_THRU_TRANSMIT.model_dump(mode="json")


def receive_port_fields(port: ReceivePortDefinition) -> dict[str, Any]:
    """Return the fields of a declared receive port."""
    return {ROUTE_FAILURES: port.route_failures, AUTHENTICATION: port.authentication}


def location_fields(port: ReceivePortDefinition, location: ReceiveLocationDefinition, home: Path) -> dict[str, Any]:
    """Return the fields of a declared location. A schedule that is not declared belongs to the operator."""
    schedule = {} if location.schedule is None else {"schedule": location.schedule}
    return {
        "receive port": port.name,
        "host": location.host,
        "adapter": location.adapter.model_dump(mode="json"),
        "pipeline": location.pipeline.model_dump(mode="json"),
        MAPS: port.maps.model_dump(mode="json"),
        TWO_WAY: port.two_way,
        SEND_PIPELINE: port.send_pipeline.model_dump(mode="json"),
        RESPONSE_MAPS: port.response_maps.model_dump(mode="json"),
        "uri": location.adapter.address(home),
        **schedule,
    }


def deployed_location_fields(location: ReceiveLocation, host: str) -> dict[str, Any]:
    """Return the fields of a deployed location."""
    return {
        "receive port": location.port_name,
        "host": host,
        "adapter": location.adapter_json,
        "pipeline": location.pipeline_json,
        MAPS: location.maps_json,
        TWO_WAY: location.is_two_way,
        SEND_PIPELINE: (location.response_json or {}).get("pipeline", _PASS_THRU),
        RESPONSE_MAPS: (location.response_json or {}).get("maps", _NO_MAPS),
        "uri": location.uri,
        "schedule": location.schedule,
    }


def send_port_fields(port: SendPortDefinition, home: Path) -> dict[str, Any]:
    """Return the fields of a declared send port."""
    return {
        "host": port.host,
        "adapter": port.adapter.model_dump(mode="json"),
        "uri": port.adapter.address(home),
        "filter": None if port.filter is None else format_filter(port.filter),
        "priority": port.priority,
        "retry count": port.retry.count,
        "retry interval": timedelta(seconds=port.retry.interval),
        SERVICE_WINDOW: port.service_window,
        CIRCUIT_BREAKER: port.circuit_breaker,
        "expire after": port.expire_after,
        **_backup_fields(port.backup, home),
        ROUTE_FAILURES: port.route_failures,
        "description": port.description,
        MAPS: port.maps.model_dump(mode="json"),
        "pipeline": port.pipeline.model_dump(mode="json"),
        TWO_WAY: port.two_way,
        RECEIVE_PIPELINE: {} if port.receive_pipeline is None else port.receive_pipeline.model_dump(mode="json"),
        RESPONSE_MAPS: port.response_maps.model_dump(mode="json"),
        ORDERED: port.ordered,
        "stop on failure": port.stop_on_failure,
    }


def response_fields(fields: dict[str, Any]) -> dict[str, Any] | None:
    """Return how responses are processed, from the fields of a location or a send port. None if it is one-way."""
    if not fields[TWO_WAY]:
        return None
    pipeline = fields[RECEIVE_PIPELINE if RECEIVE_PIPELINE in fields else SEND_PIPELINE]
    return {"pipeline": pipeline, "maps": fields[RESPONSE_MAPS]}


def deployed_send_port_fields(port: SendPort, host: str) -> dict[str, Any]:
    """Return the fields of a deployed send port."""
    return {
        "host": host,
        "adapter": port.adapter_json,
        "uri": port.uri,
        "filter": port.filter,
        "priority": port.priority,
        "retry count": port.retry_count,
        "retry interval": port.retry_interval,
        SERVICE_WINDOW: port.service_window,
        CIRCUIT_BREAKER: port.circuit_breaker,
        "expire after": port.expire_after,
        **_deployed_backup_fields(port.backup),
        ROUTE_FAILURES: port.route_failures,
        "description": port.description,
        MAPS: port.maps_json,
        "pipeline": port.pipeline_json,
        TWO_WAY: port.is_two_way,
        RECEIVE_PIPELINE: (port.response_json or {}).get("pipeline", {}),
        RESPONSE_MAPS: (port.response_json or {}).get("maps", _NO_MAPS),
        ORDERED: port.ordered,
        "stop on failure": port.stop_on_failure,
    }


def _backup_fields(backup: BackupTransport | None, home: Path) -> dict[str, Any]:
    if backup is None:
        return {BACKUP_ADAPTER: {}, **dict.fromkeys(BACKUP)}
    interval = timedelta(seconds=backup.retry.interval)
    values = (backup.adapter.address(home), backup.retry.count, interval, backup.service_window)
    return {BACKUP_ADAPTER: backup.adapter.model_dump(mode="json"), **dict(zip(BACKUP, values, strict=True))}


def _deployed_backup_fields(backup: Transport | None) -> dict[str, Any]:
    if backup is None:
        return {BACKUP_ADAPTER: {}, **dict.fromkeys(BACKUP)}
    values = (backup.uri, backup.retry_count, backup.retry_interval, backup.service_window)
    return {BACKUP_ADAPTER: backup.adapter_json, **dict(zip(BACKUP, values, strict=True))}
