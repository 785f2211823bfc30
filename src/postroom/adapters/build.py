"""From what is stored to an adapter's definition, and from that to the thing that sends."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import Field, TypeAdapter, ValidationError

from postroom.adapters.contract import SendAdapter
from postroom.adapters.dynamic.definition import Dynamic
from postroom.adapters.file.definition import File
from postroom.adapters.http.definition import Http
from postroom.adapters.http.receive_definition import HttpReceive
from postroom.adapters.null import Null, NullSender
from postroom.adapters.sink.definition import SparkSink, SparkTable
from postroom.adapters.spark_reader.definition import SparkReader
from postroom.clock import Clock, system_clock
from postroom.errors import DefinitionError, StateError

#: Any adapter; ``kind`` tells which.
AnyAdapter = File | Http | HttpReceive | Null | SparkReader

#: A send port that Spark drains.
AnySink = SparkSink | SparkTable

#: What a send port can have: an adapter, the choice of one for each message, or a sink.
PortAdapter = AnyAdapter | Dynamic | AnySink

_STORED: TypeAdapter[PortAdapter] = TypeAdapter(Annotated[PortAdapter, Field(discriminator="kind")])


def load_adapter(stored: Mapping[str, Any]) -> PortAdapter:
    """The definition that ``model_dump(mode="json")`` made ``stored`` of."""
    try:
        return _STORED.validate_python(dict(stored))
    except (ValidationError, TypeError) as error:
        # Without values: among them are passwords, and suspended messages show this to operators.
        wrong = str(error)
        if isinstance(error, ValidationError):
            wrong = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise DefinitionError(
            f"This is not a stored adapter of the kind {stored.get('kind')!r}.",
            why=wrong,
            hint="It may have been written by another version; apply the application again.",
        ) from None


@cache
def transport_type(kind: str) -> str:
    """What BTS.InboundTransportType and BTS.OutboundTransportType say of a kind of adapter."""
    known: dict[str, str] = {one.model_fields["kind"].default: one.transport_type for one in get_args(PortAdapter)}
    return known.get(kind, kind.upper())


def watched_folder(stored: Mapping[str, Any]) -> File | None:
    """The folder that a receive location with this stored adapter claims files in, if it does."""
    match load_adapter(stored):
        case File() as file:
            return file
        case SparkReader() as reader if reader.reads_files:
            return reader.watched
    return None


def build(definition: PortAdapter, home: Path, *, clock: Clock = system_clock) -> SendAdapter:
    """The send adapter for a definition, not yet opened; relative paths are taken from ``home``."""
    # What only one adapter needs is imported only for it.
    match definition:
        case File():
            from postroom.adapters.file.send import FileSender

            return FileSender(definition, home=home, clock=clock)
        case Http():
            from postroom.adapters.http.send import HttpSender

            return HttpSender(definition, home=home)
        case Null():
            return NullSender()
        case HttpReceive():
            raise DefinitionError("The adapter 'http_receive' cannot send.", hint="adapters.Http(url) sends by HTTP.")
        case SparkReader():
            raise DefinitionError(f"adapters.SparkReader({definition.format!r}) reads, and cannot send.")
        case Dynamic():
            from postroom.adapters.dynamic.send import DynamicSender

            return DynamicSender(definition, home=home, clock=clock)
        case SparkSink() | SparkTable():
            raise StateError(
                "A Spark sink is not served by hosts.", hint="Run 'postroom pipeline run' for the port's host."
            )
