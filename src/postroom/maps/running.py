"""Runs maps: the new body of a message, its type, and the properties that it promotes.

A receive port runs its maps over batches of documents (inbound.py), a send port over single messages (SND-01).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from postroom.errors import MapFailure
from postroom.maps.contract import CORRECT_MAP_HINT, Map, wrong_type_failure
from postroom.message import Body, Context, Message, Part
from postroom.pipelines.components.stored_component import component_failure
from postroom.pipelines.documents.disassembled_batch import MAX_DOCUMENT_SIZE
from postroom.pipelines.documents.message_batch import strip_zeros
from postroom.processes.time_limit import TimedCall, TimedOut, call_each_with_timeout
from postroom.properties import Property, is_distinguished
from postroom.system_properties import BTS
from postroom.temporary_bodies import spool
from postroom.values import Value


@dataclass(frozen=True, kw_only=True)
class MapResult:
    """A mapped document. ``values`` has every property that its map may promote, None for absent values."""

    body: Body
    content_type: str
    message_type: str
    values: Mapping[str, Value | None] = field(default_factory=dict)


class RunningMaps:
    """The loaded maps of a port. It is safe for threads."""

    def __init__(self, loaded: Sequence[Map]) -> None:
        self._by_source = {map_.source: map_ for map_ in loaded}
        found = {prop.key: prop for map_ in loaded for prop in map_.may_promote}
        self.promotes: tuple[Property, ...] = tuple(found.values())

    def find(self, message_type: object) -> Map | None:
        """Return the map for a message type, or None. Messages of other types are not changed."""
        return self._by_source.get(message_type) if isinstance(message_type, str) else None

    def run(self, messages: Sequence[tuple[Map, Message]]) -> list[MapResult | MapFailure]:
        """Map messages one after the other. Return a result or a failure for each."""
        calls = [
            TimedCall(seconds=map_.seconds, function=partial(_transform, map_, message)) for map_, message in messages
        ]
        return [
            result if isinstance(result, MapResult) else _to_failure(map_, result)
            for (map_, _), result in zip(messages, call_each_with_timeout(calls), strict=True)
        ]

    def map_message(self, message: Message) -> Message:
        """Return the result of the map for the message's type, with the same id. Return the message unchanged if there
        is no such map. Raise MapFailure if it cannot be mapped."""
        selected = self.find(message.context.get(BTS.MessageType))
        if selected is None:
            return message
        result = self._run_one(selected, message)
        return replace(message, context=_build_context(message.context, result), **_build_parts(message, result))

    def create_message(self, message: Message) -> Message:
        """Return the result of the only map, as a new message that promotes nothing of the original. Its properties can
        be read. Raise MapFailure if it cannot be mapped."""
        [selected] = self._by_source.values()
        result = self._run_one(selected, message)
        context = _build_context(message.context.demote_all(), result)
        return replace(message, context=context, **_build_parts(message, result))

    def _run_one(self, map_: Map, message: Message) -> MapResult:
        # The body is read in this thread, which has the claim and notices if the claim is lost.
        [result] = self.run([(map_, _read_body(message))])
        if not isinstance(result, MapResult):
            raise result
        return result


def _transform(map_: Map, message: Message) -> MapResult:
    if message.body is not None and message.body.body.size > MAX_DOCUMENT_SIZE:
        raise _oversize_failure(f"The message has {message.body.body.size:,} bytes")
    transformed = map_.transform(message)
    content_type = map_.content_type
    values: dict[str, Value | None] = dict.fromkeys(prop.key for prop in map_.may_promote)
    if isinstance(transformed, Message):
        if transformed.body is None:
            raise MapFailure("It returned a message without a body.", hint=CORRECT_MAP_HINT)
        values |= _check_promoted(map_, message, transformed)
        content_type = transformed.body.content_type
        body = transformed.body.body
    else:
        body = message.with_body(transformed).body.body  # type: ignore[union-attr]
    if body.size > MAX_DOCUMENT_SIZE:
        raise _oversize_failure(f"The result of the map has {body.size:,} bytes")
    if map_.read is not None:
        values |= _read_promoted(map_, body)
    return MapResult(body=body, content_type=content_type, message_type=map_.target, values=values)


def _check_promoted(map_: Map, original: Message, transformed: Message) -> dict[str, Value | None]:
    """Return the properties that a map promoted itself. Properties of the original message need no declaration."""
    changed = {
        key: value for key, value in transformed.context.promoted.items() if original.context.promoted.get(key) != value
    }
    if changed.pop(BTS.MessageType.key, map_.target) != map_.target:
        raise MapFailure(
            f"It returned a message of another type than its target, {map_.target!r}.", hint=CORRECT_MAP_HINT
        )
    undeclared = sorted(changed.keys() - {prop.key for prop in map_.promotes})
    if undeclared:
        raise MapFailure(
            f"It promotes {', '.join(undeclared)}, which is not in its promotes.",
            hint="Add it to promotes of the map, so that filters can compare it.",
        )
    return dict(changed)


def _read_promoted(map_: Map, body: Body) -> dict[str, Value | None]:
    """Return the properties that ``read`` promotes from the document."""
    assert map_.read is not None
    rows: list[dict[str, Any]] = [row for batch in map_.read.disassemble(body) for row in batch.messages.to_pylist()]
    if len(rows) != 1:
        raise MapFailure(f"The result of the map has {len(rows)} messages; it must have one.", hint=CORRECT_MAP_HINT)
    found = rows[0]["message_type"]
    if found is not None and found != map_.target:
        raise wrong_type_failure(map_.target, found)
    return {prop.key: strip_zeros(rows[0][prop.key]) for prop in map_.read.promotes}


def _oversize_failure(what: str) -> MapFailure:
    return MapFailure(
        f"{what}.",
        why=f"The maximum size of a document before and after a map is {MAX_DOCUMENT_SIZE:,} bytes.",
        hint="Split it before it is mapped, or remove the map from the port.",
    )


def _to_failure(map_: Map, reason: BaseException) -> MapFailure:
    if isinstance(reason, TimedOut):
        reason = MapFailure(
            f"It did not return within {map_.seconds:g} seconds.",
            why="This is the time limit of the map for one message.",
            hint="Correct the map, or raise its seconds; then resume.",
        )
    named = component_failure(map_.name, reason)
    return MapFailure(named.what, why=named.why, hint=named.hint)


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
