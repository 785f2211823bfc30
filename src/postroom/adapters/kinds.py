"""The registry of all adapters, for definitions that applications declare and for stored definitions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import Field, TypeAdapter

from postroom.adapters.contract import AdapterDefinition, SendAdapter
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

#: The same, as fields of stored definitions. ``kind`` is the discriminator.
StoredReceiveAdapter = Annotated[ReceiveAdapter, Field(discriminator="kind")]
StoredPortAdapter = Annotated[PortAdapter, Field(discriminator="kind")]

_RECEIVE: TypeAdapter[ReceiveAdapter] = TypeAdapter(StoredReceiveAdapter)
_PORT: TypeAdapter[PortAdapter] = TypeAdapter(StoredPortAdapter)

#: Every adapter by its kind.
ADAPTERS: Mapping[str, type[AdapterDefinition]] = {
    adapter.model_fields["kind"].default: adapter for adapter in (*get_args(ReceiveAdapter), *get_args(PortAdapter))
}


def load_receive_adapter(stored: Mapping[str, Any]) -> ReceiveAdapter:
    """Parse the stored adapter of a receive location."""
    return read_stored(f"receive adapter of the kind {stored.get('kind')!r}", _RECEIVE, stored)


def load_port_adapter(stored: Mapping[str, Any]) -> PortAdapter:
    """Parse the stored adapter of a send port."""
    return read_stored(f"send adapter of the kind {stored.get('kind')!r}", _PORT, stored)


def get_adapter_type(kind: str) -> type[AdapterDefinition]:
    """Return the type for a kind of adapter, or AdapterDefinition if the kind is not known."""
    return ADAPTERS.get(kind, AdapterDefinition)


def build(definition: PortAdapter, home: Path) -> SendAdapter:
    """Return a send adapter that is not open yet. Relative paths are resolved against ``home``."""
    return definition.make_sender(home)
