"""The maps of a send port: on what its adapter is to send, before anything else happens to it (SND-01)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from postroom.maps.port_maps import PortMaps
from postroom.maps.running import Made
from postroom.message import Context, Message, Part
from postroom.namespaces import is_distinguished
from postroom.pipelines.documents.disassembled_batch import MAX_DOCUMENT_SIZE
from postroom.pipelines.documents.spool import spool
from postroom.system_properties import BTS


def map_message(maps: PortMaps, message: Message) -> Message:
    """Return the message as the map for its type makes it, under its own id; the message itself if there is no such
    map. Raises MapFailure, or PipelineFailure if the maps cannot be loaded here. For many threads."""
    one = maps.running.find(message.context.get(BTS.MessageType)) if maps else None
    if one is None:
        return message
    # Read here: whoever has the claim may read, and must know if it is lost.
    [result] = maps.running.run([(one, _in_hand(message))])
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
