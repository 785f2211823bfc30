"""Postroom: an integration server. Spark is its data pipeline, PostgreSQL its MessageBox.

Applications and programs import the names below. Each is loaded on first use, so importing the package is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from postroom import adapters, maps, pipelines
    from postroom.agent.direct.direct_batch import Published
    from postroom.application import Application, Retry, Schedule, Throttling
    from postroom.client import Client, connect
    from postroom.errors import PublishFailed
    from postroom.message import Context, Message, Part
    from postroom.properties import Property
    from postroom.system_properties import BTS, FILE, HTTP, ErrorReport

__version__ = "0.1.0"

__all__ = [
    "BTS",
    "FILE",
    "HTTP",
    "Application",
    "Client",
    "Context",
    "ErrorReport",
    "Message",
    "Part",
    "Property",
    "PublishFailed",
    "Published",
    "Retry",
    "Schedule",
    "Throttling",
    "__version__",
    "adapters",
    "connect",
    "maps",
    "pipelines",
]

_HOMES = {
    "BTS": "postroom.system_properties",
    "FILE": "postroom.system_properties",
    "HTTP": "postroom.system_properties",
    "Application": "postroom.application",
    "Client": "postroom.client",
    "Context": "postroom.message",
    "ErrorReport": "postroom.system_properties",
    "Message": "postroom.message",
    "Part": "postroom.message",
    "Property": "postroom.properties",
    "PublishFailed": "postroom.errors",
    "Published": "postroom.agent.direct.direct_batch",
    "Retry": "postroom.application",
    "Schedule": "postroom.application",
    "Throttling": "postroom.application",
    "connect": "postroom.client",
}


def __getattr__(name: str) -> Any:
    if name in ("adapters", "maps", "pipelines"):
        return import_module(f"postroom.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'postroom' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
