"""The registry of all adapters: those of Postroom, and those of installed packages.

A package registers the definitions of its adapters under their kinds:

    [project.entry-points."postroom.adapters"]
    ftp = "acme_postroom.ftp:Ftp"
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

from pydantic import PlainValidator, SerializeAsAny, TypeAdapter

from postroom.adapters.contract import AdapterDefinition, ReceiveDefinition, SendAdapter, SendDefinition
from postroom.adapters.dynamic.definition import Dynamic
from postroom.adapters.file.definition import File
from postroom.adapters.http.definition import Http
from postroom.adapters.http.receive_definition import HttpReceive
from postroom.adapters.null import Null
from postroom.adapters.postgres.definition import Postgres
from postroom.adapters.postgres.receive_definition import PostgresReceive
from postroom.adapters.sink.definition import SparkSink, SparkTable
from postroom.adapters.spark_reader.definition import SparkReader
from postroom.errors import DefinitionError
from postroom.stored_definitions import read_stored

#: The group of entry points that packages register their adapters in.
ENTRY_POINTS = "postroom.adapters"

#: The adapters of Postroom by kind.
ADAPTERS: Mapping[str, type[AdapterDefinition]] = {
    adapter.model_fields["kind"].default: adapter
    for adapter in (
        Dynamic,
        File,
        Http,
        HttpReceive,
        Null,
        Postgres,
        PostgresReceive,
        SparkReader,
        SparkSink,
        SparkTable,
    )
}


def find_adapter_type(kind: str) -> type[AdapterDefinition]:
    """Return the type for a kind of adapter. Raise DefinitionError if no usable one is installed here."""
    return ADAPTERS[kind] if kind in ADAPTERS else _load_from_package(kind)


@cache
def _load_from_package(kind: str) -> type[AdapterDefinition]:
    found = list(entry_points(group=ENTRY_POINTS, name=kind))
    if not found:
        raise DefinitionError(
            f"There is no adapter of the kind {kind!r}.",
            why=f"No package with an entry point {kind!r} in the group {ENTRY_POINTS!r} is installed here.",
            hint="Install the package of the adapter in the environment of this command and of the hosts.",
        )
    sources = sorted({f"{point.dist.name if point.dist else 'a package'} ({point.value})" for point in found})
    if len(sources) > 1:
        raise DefinitionError(
            f"Several packages have an adapter of the kind {kind!r}: {', '.join(sources)}.",
            hint="Uninstall all but one of them.",
        )
    try:
        loaded = found[0].load()
    except Exception as error:  # the package can raise anything
        raise DefinitionError(
            f"The adapter of the kind {kind!r} cannot be loaded from {sources[0]}.",
            why=f"{type(error).__name__}: {error}",
            hint="Correct or reinstall the package.",
        ) from error
    if not isinstance(loaded, type) or not issubclass(loaded, AdapterDefinition):
        raise DefinitionError(
            f"The adapter of the kind {kind!r} from {sources[0]} is not the definition of an adapter.",
            hint="The entry point must name a class derived from adapters.ReceiveDefinition or SendDefinition.",
        )
    if (default := loaded.model_fields["kind"].default) != kind:
        raise DefinitionError(
            f"The adapter of the kind {kind!r} from {sources[0]} has another kind in its definition: {default!r}.",
            hint=f"Write kind: Literal[{kind!r}] = {kind!r} in the class, or rename the entry point.",
        )
    return loaded


def find_registration_problem(adapter_type: type[AdapterDefinition], kind: str) -> str | None:
    """Return why a host could not load an adapter of this type, or None if it can."""
    try:
        registered = find_adapter_type(kind)
    except DefinitionError as error:
        return error.join_sentences()
    if registered is adapter_type:
        return None
    return f"{adapter_type.__qualname__} has the kind {kind!r}, which is that of {registered.__qualname__}; rename it."


def get_receive_type(kind: str) -> type[ReceiveDefinition]:
    """Return the type for a kind of receive adapter, or ReceiveDefinition if no usable one is installed here."""
    found = _get_adapter_type(kind)
    return found if issubclass(found, ReceiveDefinition) else ReceiveDefinition


def get_send_type(kind: str) -> type[SendDefinition]:
    """Return the type for a kind of send adapter, or SendDefinition if no usable one is installed here."""
    found = _get_adapter_type(kind)
    return found if issubclass(found, SendDefinition) else SendDefinition


def _get_adapter_type(kind: str) -> type[AdapterDefinition]:
    try:
        return find_adapter_type(kind)
    except DefinitionError:
        return AdapterDefinition


def list_adapter_types() -> dict[str, type[AdapterDefinition]]:
    """Return the adapters of Postroom, and those of installed packages that can be used, by kind."""
    kinds = sorted({*ADAPTERS, *(point.name for point in entry_points(group=ENTRY_POINTS))})
    found = {kind: _get_adapter_type(kind) for kind in kinds}
    return {kind: adapter_type for kind, adapter_type in found.items() if adapter_type is not AdapterDefinition}


def _read_adapter(source: object) -> AdapterDefinition:
    if isinstance(source, AdapterDefinition):
        return source
    if not isinstance(source, Mapping) or not isinstance(kind := source.get("kind"), str):
        raise ValueError("an adapter is an object with a kind")
    try:
        return find_adapter_type(kind)(**source)
    except DefinitionError as error:
        raise ValueError(f"{error.what} {error.why}".rstrip()) from None


def _read_receive_adapter(source: object) -> ReceiveDefinition:
    adapter = _read_adapter(source)
    if not isinstance(adapter, ReceiveDefinition):
        raise ValueError(f"the adapter {adapter.kind!r} cannot receive")
    return adapter


def _read_send_adapter(source: object) -> SendDefinition:
    adapter = _read_adapter(source)
    if not isinstance(adapter, SendDefinition):
        raise ValueError(f"the adapter {adapter.kind!r} cannot send")
    return adapter


#: The adapter of a receive location or send port as a field of stored definitions. ``kind`` selects its type.
StoredReceiveAdapter = Annotated[SerializeAsAny[ReceiveDefinition], PlainValidator(_read_receive_adapter)]
StoredSendAdapter = Annotated[SerializeAsAny[SendDefinition], PlainValidator(_read_send_adapter)]

_RECEIVE: TypeAdapter[ReceiveDefinition] = TypeAdapter(StoredReceiveAdapter)
_SEND: TypeAdapter[SendDefinition] = TypeAdapter(StoredSendAdapter)


def load_receive_adapter(stored: Mapping[str, Any]) -> ReceiveDefinition:
    """Parse the stored adapter of a receive location."""
    return read_stored(f"adapter of the kind {stored.get('kind')!r}", _RECEIVE, stored)


def load_send_adapter(stored: Mapping[str, Any]) -> SendDefinition:
    """Parse the stored adapter of a send port."""
    return read_stored(f"adapter of the kind {stored.get('kind')!r}", _SEND, stored)


def get_watched_folder(adapter: ReceiveDefinition) -> File | None:
    """Return the folder that a receive location with this adapter claims files in, or None if it claims no files."""
    if isinstance(adapter, SparkReader):
        return adapter.watched_folder
    return adapter if isinstance(adapter, File) else None


def build(definition: SendDefinition, home: Path) -> SendAdapter:
    """Return a send adapter that is not open yet. Relative paths are resolved against ``home``."""
    return definition.make_sender(home)
