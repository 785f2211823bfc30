"""What all adapter definitions share: frozen, serialisable, and able to say what is wrong with them."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from postroom.adapters.contract import SendAdapter
from postroom.clock import Clock, system_clock
from postroom.errors import DefinitionError
from postroom.stored_definitions import wrong_fields

if TYPE_CHECKING:
    from postroom.adapters.file.definition import File


class AdapterDefinition(BaseModel):
    """How one receive location or send port reaches the outside.

    Making one checks types only. What the values mean is checked by ``problems``, so that an application can be
    refused with all of them at once. What differs from adapter to adapter is an attribute or a method here: nobody
    else compares kinds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    #: The value of BTS.InboundTransportType and BTS.OutboundTransportType.
    transport_type: ClassVar[str] = ""
    #: Spark drains the send port; hosts do not serve it.
    is_sink: ClassVar[bool] = False
    #: Each message brings its own address.
    is_dynamic: ClassVar[bool] = False
    #: Spark's own readers read rows.
    reads_rows: ClassVar[bool] = False
    #: What a receive location takes in, in the words of people.
    intake_unit: ClassVar[str] = "file"

    kind: str

    def __init__(self, **arguments: Any) -> None:
        try:
            super().__init__(**arguments)
        except ValidationError as error:
            name = type(self).__name__
            raise DefinitionError(
                f"adapters.{name} cannot be made from these arguments: {wrong_fields(error)}."
            ) from None

    def problems(self) -> list[str]:
        """What is wrong, one sentence each; empty when nothing is."""
        return []

    @abstractmethod
    def address(self, home: Path) -> str:
        """Where it leads, as a URI: what BTS.InboundTransportLocation and BTS.OutboundTransportLocation say."""

    @property
    def watched_folder(self) -> File | None:
        """The folder that a receive location claims files in, or None if it claims none."""
        return None

    @property
    def guarantee(self) -> str:
        """What a sink promises of every message, in one line; empty for other adapters."""
        return ""

    @property
    def is_row_stream(self) -> bool:
        """Whether Spark follows a source with offsets of its own, and remembers what it has read."""
        return False

    @property
    def is_ordered(self) -> bool:
        """Whether interchanges come in one after the other (RCV-25)."""
        return False

    def make_sender(self, home: Path, *, clock: Clock = system_clock) -> SendAdapter:
        """Return the adapter that sends, not yet opened; relative paths are taken from ``home``."""
        raise DefinitionError(f"The adapter {self.kind!r} cannot send.")
