"""Postroom: an integration server. Spark is its data pipeline, PostgreSQL its MessageBox.

Applications and programs import the names below. Each is loaded on first use, so importing the package is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from postroom import adapters, maps, orchestrations, pipelines, testing
    from postroom.agent.direct.direct_batch import Published
    from postroom.application import Application, BackupTransport, CircuitBreaker, Handler, Retry, Schedule, Throttling
    from postroom.client.async_client import AsyncClient, connect_async
    from postroom.client.client import Client, connect
    from postroom.client.subscription import Received, Subscription
    from postroom.errors import (
        BadFilter,
        BadValue,
        ClaimLost,
        DefinitionRefused,
        KeyReused,
        NoResponse,
        NotAllowed,
        NotFound,
        PostroomError,
        PublishFailed,
        ResponseTimeout,
        StateError,
        Throttled,
        Unavailable,
    )
    from postroom.message import Context, Message, Part
    from postroom.properties import Property
    from postroom.secrets.references import Secret, secret
    from postroom.system_properties import BTS, FILE, HTTP, ErrorReport

__version__ = "0.1.0"

__all__ = [
    "BTS",
    "FILE",
    "HTTP",
    "Application",
    "AsyncClient",
    "BackupTransport",
    "BadFilter",
    "BadValue",
    "CircuitBreaker",
    "ClaimLost",
    "Client",
    "Context",
    "DefinitionRefused",
    "ErrorReport",
    "Handler",
    "KeyReused",
    "Message",
    "NoResponse",
    "NotAllowed",
    "NotFound",
    "Part",
    "PostroomError",
    "Property",
    "PublishFailed",
    "Published",
    "Received",
    "ResponseTimeout",
    "Retry",
    "Schedule",
    "Secret",
    "StateError",
    "Subscription",
    "Throttled",
    "Throttling",
    "Unavailable",
    "__version__",
    "adapters",
    "connect",
    "connect_async",
    "maps",
    "orchestrations",
    "pipelines",
    "secret",
    "testing",
]

_HOMES = {
    "BTS": "postroom.system_properties",
    "FILE": "postroom.system_properties",
    "HTTP": "postroom.system_properties",
    "Application": "postroom.application",
    "AsyncClient": "postroom.client.async_client",
    "BackupTransport": "postroom.application",
    "BadFilter": "postroom.errors",
    "BadValue": "postroom.errors",
    "ClaimLost": "postroom.errors",
    "CircuitBreaker": "postroom.application",
    "Client": "postroom.client.client",
    "Context": "postroom.message",
    "DefinitionRefused": "postroom.errors",
    "ErrorReport": "postroom.system_properties",
    "Handler": "postroom.application",
    "KeyReused": "postroom.errors",
    "Message": "postroom.message",
    "NoResponse": "postroom.errors",
    "NotAllowed": "postroom.errors",
    "NotFound": "postroom.errors",
    "Part": "postroom.message",
    "PostroomError": "postroom.errors",
    "Property": "postroom.properties",
    "PublishFailed": "postroom.errors",
    "Published": "postroom.agent.direct.direct_batch",
    "Received": "postroom.client.subscription",
    "ResponseTimeout": "postroom.errors",
    "Retry": "postroom.application",
    "Schedule": "postroom.application",
    "Secret": "postroom.secrets.references",
    "StateError": "postroom.errors",
    "Subscription": "postroom.client.subscription",
    "Throttled": "postroom.errors",
    "Throttling": "postroom.application",
    "Unavailable": "postroom.errors",
    "connect": "postroom.client.client",
    "secret": "postroom.secrets.references",
    "connect_async": "postroom.client.async_client",
}


def __getattr__(name: str) -> Any:
    if name in ("adapters", "maps", "orchestrations", "pipelines", "testing"):
        return import_module(f"postroom.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'postroom' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
