"""The stored fields of ports and locations that follow their declaration, as declared and as deployed.

State, and whether a location is enabled, belong to the operator and are not among them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from postroom.application import ReceivePortDefinition
from postroom.application.backup_transport import TransportSettings
from postroom.application.retry import Retry
from postroom.maps.port_maps import NO_MAPS
from postroom.pipelines.send.definition import PASS_THRU_TRANSMIT
from postroom.ports.receive_locations import ReceiveLocation
from postroom.ports.send_ports import SendPort, Transport

ROUTE_FAILURES = "route failures"
AUTHENTICATION = "authentication"
MAPS = "maps"
CIRCUIT_BREAKER = "circuit breaker"
ORDERED = "ordered"
TWO_WAY = "two-way"
RESPONSE_MAPS = "response maps"

#: The names of settings that plans do not show as they are written in Python.
_NAMES = {"two_way": TWO_WAY}
_NO_MAPS = NO_MAPS.model_dump(mode="json")
_PASS_THRU = PASS_THRU_TRANSMIT.model_dump(mode="json")


def receive_port_fields(port: ReceivePortDefinition) -> dict[str, Any]:
    """Return the fields of a declared receive port."""
    return {ROUTE_FAILURES: port.route_failures, AUTHENTICATION: port.authentication}


def location_fields(location: ReceiveLocation, host: str) -> dict[str, Any]:
    """Return the fields of a receive location, declared or deployed."""
    response = location.response_json or {}
    return {
        "receive port": location.port_name,
        "host": host,
        "adapter": location.adapter_json,
        "pipeline": location.pipeline_json,
        MAPS: location.maps_json,
        TWO_WAY: location.is_two_way,
        "send pipeline": response.get("pipeline", _PASS_THRU),
        RESPONSE_MAPS: response.get("maps", _NO_MAPS),
        "uri": location.uri,
        "schedule": location.schedule,
    }


def send_port_fields(port: SendPort, host: str) -> dict[str, Any]:
    """Return the fields of a send port, declared or deployed."""
    response, backup = port.response_json or {}, port.backup
    return {
        "host": host,
        "adapter": port.adapter_json,
        "uri": port.uri,
        "filter": port.filter,
        **_setting_fields(port.settings),
        **(_NO_BACKUP if backup is None else _backup_fields(backup)),
        MAPS: port.maps_json,
        "pipeline": port.pipeline_json,
        "receive pipeline": response.get("pipeline", {}),
        RESPONSE_MAPS: response.get("maps", _NO_MAPS),
    }


def _backup_fields(backup: Transport) -> dict[str, Any]:
    settings = _setting_fields(backup.settings, "backup ")
    return {"backup adapter": backup.adapter_json, "backup uri": backup.uri, **settings}


def _setting_fields(settings: TransportSettings, prefix: str = "") -> dict[str, Any]:
    """Return the plain settings under the names that plans show."""
    found: dict[str, Any] = {}
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, Retry):
            found[f"{prefix}retry count"] = value.count
            found[f"{prefix}retry interval"] = timedelta(seconds=value.interval)
        else:
            found[prefix + (_NAMES.get(name) or name.replace("_", " "))] = value
    return found


_NO_BACKUP: dict[str, Any] = {
    "backup adapter": {},
    "backup uri": None,
    **dict.fromkeys(_setting_fields(TransportSettings(), "backup ")),
}
