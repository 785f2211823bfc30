"""The stored fields of ports and locations that follow their declaration, under the names that plans show.

State, and whether a location is enabled, belong to the operator and are not among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from postroom.application.backup_transport import TransportSettings
from postroom.application.retry import Retry
from postroom.ports.receive_locations import ReceiveLocation
from postroom.ports.send_ports import SendPort, Transport

CIRCUIT_BREAKER = "circuit breaker"
ORDERED = "ordered"
TWO_WAY = "two-way"

#: The names of settings that plans do not show as they are written in Python.
_NAMES = {"two_way": TWO_WAY}


def receive_port_fields(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the stored definition of a receive port."""
    return {_to_field(name): value for name, value in stored.items() if name != "name"}


def location_fields(location: ReceiveLocation, host: str) -> dict[str, Any]:
    """Return the fields of a receive location, declared or deployed."""
    return {
        "receive port": location.port_name,
        "host": host,
        "adapter": location.adapter_json,
        "pipeline": location.definition["pipeline"],
        "uri": location.uri,
        "schedule": location.schedule,
    }


def send_port_fields(port: SendPort, host: str) -> dict[str, Any]:
    """Return the fields of a send port, declared or deployed."""
    stored, backup = port.definition, port.backup
    return {
        "host": host,
        "adapter": port.adapter_json,
        "uri": port.uri,
        "filter": port.filter,
        **_setting_fields(port.settings),
        **(_NO_BACKUP if backup is None else _backup_fields(backup)),
        "maps": stored["maps"],
        "pipeline": stored["pipeline"],
        "receive pipeline": stored["receive_pipeline"] or {},
        "response maps": stored["response_maps"],
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
            found[prefix + _to_field(name)] = value
    return found


def _to_field(name: str) -> str:
    return _NAMES.get(name) or name.replace("_", " ")


_NO_BACKUP: dict[str, Any] = {
    "backup adapter": {},
    "backup uri": None,
    **dict.fromkeys(_setting_fields(TransportSettings(), "backup ")),
}
