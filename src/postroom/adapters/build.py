"""From an adapter's definition to the thing that sends."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from postroom.adapters.contract import SendAdapter
from postroom.adapters.definition import AdapterDefinition
from postroom.adapters.file.definition import File
from postroom.adapters.http.definition import Http
from postroom.adapters.null import Null, NullSender
from postroom.clock import Clock, system_clock
from postroom.errors import DefinitionError

#: Any adapter, as stored: told apart by ``kind``.
AnyAdapter = Annotated[File | Http | Null, Field(discriminator="kind")]


def build(definition: AdapterDefinition, home: Path, *, clock: Clock = system_clock) -> SendAdapter:
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
    raise DefinitionError(f"The adapter {definition.kind!r} does not send.")
