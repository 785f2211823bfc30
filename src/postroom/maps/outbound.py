"""Runs the maps of a send port, before its adapter sends a message (SND-01)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from postroom.maps.port_maps import PortMaps
from postroom.maps.running import MapResult
from postroom.message import Context, Message, Part
from postroom.pipelines.documents.disassembled_batch import MAX_DOCUMENT_SIZE
from postroom.pipelines.documents.spool import spool
from postroom.properties import is_distinguished
from postroom.system_properties import BTS


def map_message(maps: PortMaps, message: Message) -> Message:
    """Return the result of the map for the message's type, with the same id. Return the message unchanged if there is
    no such map. Raises MapFailure, or PipelineFailure if the maps cannot be loaded here. It is safe for threads."""
    selected = maps.running.find(message.context.get(BTS.MessageType)) if maps else None
    if selected is None:
        return message
    # The body is read in this thread, which has the claim and notices if the claim is lost.
    [result] = maps.running.run([(selected, _read_body(message))])
    if not isinstance(result, MapResult):
        raise result
    return replace(message, context=_build_context(message.context, result), **_build_parts(message, result))


def _read_body(message: Message) -> Message:
    body = message.body
    if body is None or body.body.size > MAX_DOCUMENT_SIZE:
        return message
    spooled = replace(body, body=spool(body.body.chunks(), max_size=MAX_DOCUMENT_SIZE))
    return replace(message, parts=tuple(spooled if part is body else part for part in message.parts))


def _build_context(context: Context, result: MapResult) -> Context:
    promoted = {key: value for key, value in context.promoted.items() if key not in result.values}
    written = {key: value for key, value in context.written.items() if key not in result.values}
    for key, value in result.values.items():
        if value is not None:
            (written if is_distinguished(key) else promoted)[key] = value
    changed = Context(promoted, written, context.predicates)
    return changed.promote(BTS.MessageType, result.message_type)


def _build_parts(message: Message, result: MapResult) -> dict[str, Any]:
    body = message.body
    if body is None:
        part = Part(body=result.body, content_type=result.content_type)
        return {"parts": (part, *message.parts), "body_part_name": part.name}
    changed = replace(body, body=result.body, content_type=result.content_type, charset=None)
    return {"parts": tuple(changed if part is body else part for part in message.parts)}
