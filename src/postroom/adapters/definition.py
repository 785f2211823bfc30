"""What all adapter definitions share: frozen, serialisable, and able to say what is wrong with them."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from postroom.errors import DefinitionError


class AdapterDefinition(BaseModel):
    """How one receive location or send port reaches the outside.

    Making one checks types only. What the values mean is checked by ``problems``, so that an application can be
    refused with all of them at once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    #: What BTS.InboundTransportType and BTS.OutboundTransportType say.
    transport_type: ClassVar[str]
    receives: ClassVar[bool] = False
    sends: ClassVar[bool] = False

    kind: str

    def __init__(self, **arguments: Any) -> None:
        try:
            super().__init__(**arguments)
        except ValidationError as error:
            wrong = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
            name = type(self).__name__
            raise DefinitionError(f"adapters.{name} cannot be made from these arguments: {wrong}.") from None

    def problems(self) -> list[str]:
        """What is wrong, one sentence each; empty when nothing is."""
        return []

    @abstractmethod
    def address(self, home: Path) -> str:
        """Where it leads, as a URI: what BTS.InboundTransportLocation and BTS.OutboundTransportLocation say."""
