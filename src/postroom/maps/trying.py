"""A map tried out, as somebody does who writes one, or a test of it."""

from __future__ import annotations

import os
from pathlib import Path

from postroom.errors import DefinitionRefused, Problem
from postroom.maps.contract import Map
from postroom.maps.port_maps import PortMaps, map_problems
from postroom.message import Message
from postroom.system_properties import BTS


def try_out(one: Map, message: Message | bytes, *, folder: str | os.PathLike[str] = ".") -> Message:
    """What a port would make of a message; of bytes, as the body of one of the map's source type. ``folder`` is the
    application's. MapFailure if it cannot be mapped, DefinitionRefused if the map cannot be applied.

    maps.try_out(to_invoice, b"<order><total>5</total></order>").data
    """
    # pyarrow and lxml are needed to run a map, not to declare one.
    from postroom.maps.outbound import map_message

    problems = [Problem(text) for text in map_problems([one], Path(folder))]
    if problems:
        raise DefinitionRefused("The map", problems)
    given = message if isinstance(message, Message) else Message.of(message, promoted={BTS.MessageType: one.source})
    return map_message(PortMaps.packed([one], Path(folder)), given)
