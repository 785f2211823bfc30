"""Runs maps: the new body of a message, its type, and the properties that it promotes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from postroom.errors import MapFailure
from postroom.maps.contract import CORRECT_MAP_HINT, Map, wrong_type_failure
from postroom.message import Body, Message
from postroom.pipelines.documents.disassembled_batch import MAX_DOCUMENT_SIZE
from postroom.pipelines.documents.message_batch import strip_zeros
from postroom.pipelines.receive.component_calls import component_failure
from postroom.properties import Property
from postroom.system_properties import BTS
from postroom.time_limit import TimedCall, TimedOut, call_each_with_timeout
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
        raise MapFailure(f"The result of the map has {len(rows)} messages; it must have map_.", hint=CORRECT_MAP_HINT)
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
            why="This is the time limit of the map for map_ message.",
            hint="Correct the map, or raise its seconds; then resume.",
        )
    named = component_failure(map_.name, reason)
    return MapFailure(named.what, why=named.why, hint=named.hint)
