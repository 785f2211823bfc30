"""The maps of a send port: on what its adapter is to send, before anything else happens to it (SND-01)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from postroom.maps.making import Made, RunningMaps, running_maps
from postroom.message import Context, Message, Part
from postroom.namespaces import is_distinguished
from postroom.pipelines.disassembled import MAX_DOCUMENT_SIZE
from postroom.pipelines.spooled import spool
from postroom.system_properties import BTS


class OutboundMaps:
    """The maps of one send port; for many threads."""

    def __init__(self, stored: Mapping[str, Any]) -> None:
        self._stored = stored
        self._maps: RunningMaps | None = None

    def __bool__(self) -> bool:
        return bool(self._stored.get("maps"))

    def mapped(self, message: Message) -> Message:
        """The message by the map for its type, under its own id; as it is if there is none. MapFailure."""
        if self._maps is None:
            # Now, and not before: what cannot be loaded is the failure of a message.
            self._maps = running_maps(self._stored)
        one = None if self._maps is None else self._maps.find(message.context.get(BTS.MessageType))
        if self._maps is None or one is None:
            return message
        # Read here: whoever has the claim may read, and must know if it is lost.
        [result] = self._maps.run([(one, _in_hand(message))])
        if not isinstance(result, Made):
            raise result
        return replace(message, context=_context(message.context, result), **_parts(message, result))


def _in_hand(message: Message) -> Message:
    body = message.body
    if body is None or body.body.size > MAX_DOCUMENT_SIZE:
        return message
    kept = replace(body, body=spool(body.body.chunks(), max_size=MAX_DOCUMENT_SIZE))
    return replace(message, parts=tuple(kept if part is body else part for part in message.parts))


def _context(context: Context, made: Made) -> Context:
    promoted = {key: value for key, value in context.promoted.items() if key not in made.values}
    written = {key: value for key, value in context.written.items() if key not in made.values}
    for key, value in made.values.items():
        if value is not None:
            (written if is_distinguished(key) else promoted)[key] = value
    changed = Context(promoted, written, context.predicates)
    return changed.promote(BTS.MessageType, made.message_type)


def _parts(message: Message, made: Made) -> dict[str, Any]:
    body = message.body
    if body is None:
        part = Part(body=made.body, content_type=made.content_type)
        return {"parts": (part, *message.parts), "body_part_name": part.name}
    changed = replace(body, body=made.body, content_type=made.content_type, charset=None)
    return {"parts": tuple(changed if part is body else part for part in message.parts)}
