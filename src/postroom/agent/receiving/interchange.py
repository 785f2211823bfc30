"""What arrives at a receive location, before anything has looked into it, and what the engine stamps on it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from postroom.message import Body, Context
from postroom.messagebox.configuration import ReceiveLocation
from postroom.system_properties import BTS

if TYPE_CHECKING:
    from postroom.pipelines.running.suspended_document import KeptDocument


@dataclass(frozen=True, kw_only=True)
class Interchange:
    """One wire message: its bytes, and what the adapter writes about them (it promotes nothing)."""

    interchange_id: uuid.UUID
    body: Body
    context: Context = field(default_factory=Context)
    kept: KeptDocument | None = None
    """It is a document that was suspended alone."""
    after: int = 0
    """It is the rest of an interchange: the documents up to this number came in before the others were refused."""


#: The keys of what every received message has promoted, whatever its pipeline does.
STAMPED = frozenset(
    prop.key
    for prop in (
        BTS.ReceivePortID,
        BTS.ReceivePortName,
        BTS.InboundTransportLocation,
        BTS.InboundTransportType,
        BTS.SuspendMessageOnRoutingFailure,
        BTS.InterchangeSequenceNumber,
    )
)


def stamp(location: ReceiveLocation, interchange: Interchange, decoded: Context | None = None) -> Context:
    """The context that every message of an interchange starts with (CTX-20); ``decoded`` is what the components of a
    decode stage made of the adapter's."""
    # A resumed message keeps the id of the interchange that it came with.
    original = interchange.context.get(BTS.InterchangeID, str(interchange.interchange_id))
    context = interchange.context if decoded is None else decoded
    return (
        context.promote(BTS.ReceivePortID, str(location.port_id))
        .promote(BTS.ReceivePortName, location.port_name)
        .promote(BTS.InboundTransportLocation, location.uri[:256])
        .promote(BTS.InboundTransportType, location.adapter_type.transport_type)
        .promote(BTS.SuspendMessageOnRoutingFailure, True)
        .write(BTS.ReceiveLocationName, location.name)
        .write(BTS.InterchangeID, original)
    )
