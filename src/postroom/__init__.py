"""Postroom: an integration server. Spark is its data pipeline, PostgreSQL its MessageBox.

Applications and programs import the names below. Each is loaded on first use, so importing the package is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # What type checkers and editors read of the table below. Only a name that is imported as itself is public to them.
    from postroom import adapters as adapters
    from postroom import maps as maps
    from postroom import orchestrations as orchestrations
    from postroom import pipelines as pipelines
    from postroom import testing as testing
    from postroom.adapters.http.response_head import set_http_response as set_http_response
    from postroom.agent.direct.direct_batch import Published as Published
    from postroom.application import Application as Application
    from postroom.application import BackupTransport as BackupTransport
    from postroom.application import CircuitBreaker as CircuitBreaker
    from postroom.application import Handler as Handler
    from postroom.application import Retry as Retry
    from postroom.application import Schedule as Schedule
    from postroom.application import Throttling as Throttling
    from postroom.client.async_client import AsyncClient as AsyncClient
    from postroom.client.async_client import connect_async as connect_async
    from postroom.client.client import Client as Client
    from postroom.client.client import connect as connect
    from postroom.client.subscription import Received as Received
    from postroom.client.subscription import Subscription as Subscription
    from postroom.errors import BadFilter as BadFilter
    from postroom.errors import BadValue as BadValue
    from postroom.errors import ClaimLost as ClaimLost
    from postroom.errors import DefinitionRefused as DefinitionRefused
    from postroom.errors import KeyReused as KeyReused
    from postroom.errors import NoResponse as NoResponse
    from postroom.errors import NotAllowed as NotAllowed
    from postroom.errors import NotFound as NotFound
    from postroom.errors import PostroomError as PostroomError
    from postroom.errors import PublishFailed as PublishFailed
    from postroom.errors import ResponseTimeout as ResponseTimeout
    from postroom.errors import StateError as StateError
    from postroom.errors import Throttled as Throttled
    from postroom.errors import Unavailable as Unavailable
    from postroom.lookups import Lookup as Lookup
    from postroom.lookups import lookup as lookup
    from postroom.message import Context as Context
    from postroom.message import Message as Message
    from postroom.message import Part as Part
    from postroom.properties import Property as Property
    from postroom.secrets.references import Secret as Secret
    from postroom.secrets.references import secret as secret
    from postroom.system_properties import BTS as BTS
    from postroom.system_properties import FILE as FILE
    from postroom.system_properties import HTTP as HTTP
    from postroom.system_properties import ErrorReport as ErrorReport

__version__ = "0.1.0"

#: The public names by the module that defines them. Those of the package itself are modules.
_PUBLIC = {
    "postroom": "adapters maps orchestrations pipelines testing",
    "postroom.adapters.http.response_head": "set_http_response",
    "postroom.agent.direct.direct_batch": "Published",
    "postroom.application": "Application BackupTransport CircuitBreaker Handler Retry Schedule Throttling",
    "postroom.client.async_client": "AsyncClient connect_async",
    "postroom.client.client": "Client connect",
    "postroom.client.subscription": "Received Subscription",
    "postroom.errors": "BadFilter BadValue ClaimLost DefinitionRefused KeyReused NoResponse NotAllowed NotFound"
    " PostroomError PublishFailed ResponseTimeout StateError Throttled Unavailable",
    "postroom.lookups": "Lookup lookup",
    "postroom.message": "Context Message Part",
    "postroom.properties": "Property",
    "postroom.secrets.references": "Secret secret",
    "postroom.system_properties": "BTS FILE HTTP ErrorReport",
}
_HOMES = {name: module for module, names in _PUBLIC.items() for name in names.split()}

if not TYPE_CHECKING:
    __all__ = sorted(["__version__", *_HOMES])


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'postroom' has no attribute {name!r}")
    home = _HOMES[name]
    return import_module(f"{home}.{name}") if home == __name__ else getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
