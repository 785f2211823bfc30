"""The adapters that there are: one registry for what applications declare and for what is stored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import Field, TypeAdapter

from postroom.adapters.contract import SendAdapter
from postroom.adapters.definition import AdapterDefinition
from postroom.adapters.dynamic.definition import Dynamic
from postroom.adapters.file.definition import File
from postroom.adapters.http.definition import Http
from postroom.adapters.http.receive_definition import HttpReceive
from postroom.adapters.null import Null
from postroom.adapters.sink.definition import SparkSink, SparkTable
from postroom.adapters.spark_reader.definition import SparkReader
from postroom.stored_definitions import read_stored

#: The adapters of receive locations.
ReceiveAdapter = File | HttpReceive | SparkReader

#: The adapters of send ports that Spark drains.
AnySink = SparkSink | SparkTable

#: The adapters of send ports.
PortAdapter = File | Http | Null | Dynamic | AnySink

#: The same, as fields of what is stored; ``kind`` tells which.
StoredReceiveAdapter = Annotated[ReceiveAdapter, Field(discriminator="kind")]
StoredPortAdapter = Annotated[PortAdapter, Field(discriminator="kind")]

_RECEIVE: TypeAdapter[ReceiveAdapter] = TypeAdapter(StoredReceiveAdapter)
_PORT: TypeAdapter[PortAdapter] = TypeAdapter(StoredPortAdapter)

#: Every adapter by its kind.
ADAPTERS: Mapping[str, type[AdapterDefinition]] = {
    one.model_fields["kind"].default: one for one in (*get_args(ReceiveAdapter), *get_args(PortAdapter))
}


def load_receive_adapter(stored: Mapping[str, Any]) -> ReceiveAdapter:
    """Return the adapter of a receive location that is stored like this."""
    return read_stored(f"receive adapter of the kind {stored.get('kind')!r}", _RECEIVE, stored)


def load_port_adapter(stored: Mapping[str, Any]) -> PortAdapter:
    """Return the adapter of a send port that is stored like this."""
    return read_stored(f"send adapter of the kind {stored.get('kind')!r}", _PORT, stored)


def adapter_type(kind: str) -> type[AdapterDefinition]:
    """Return the type of a kind of adapter. All that is known of an unknown kind is what all adapters share."""
    return ADAPTERS.get(kind, AdapterDefinition)


def build(definition: PortAdapter, home: Path) -> SendAdapter:
    """Return the send adapter for a definition, not yet opened; relative paths are taken from ``home``."""
    return definition.make_sender(home)
