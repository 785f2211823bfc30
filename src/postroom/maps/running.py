"""What comes of a message and its map: the new body, its type, and what it promotes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from postroom.errors import MapFailure
from postroom.maps.contract import CORRECT_IT, Map, another_type
from postroom.message import Body, Message
from postroom.pipelines.documents.disassembled_batch import MAX_DOCUMENT_SIZE
from postroom.pipelines.documents.message_batch import plain
from postroom.pipelines.running.component_calls import component_failure
from postroom.properties import Property
from postroom.system_properties import BTS
from postroom.time_limit import TimedCall, TimedOut, call_each_with_timeout
from postroom.values import Value


@dataclass(frozen=True, kw_only=True)
class Made:
    """A mapped document. ``values`` has every property that its map promotes, None where the document has none."""

    body: Body
    content_type: str
    message_type: str
    values: Mapping[str, Value | None] = field(default_factory=dict)


class RunningMaps:
    """The maps of a port, ready to run, in any number of threads."""

    def __init__(self, loaded: Sequence[Map]) -> None:
        self._by_source = {one.source: one for one in loaded}
        found = {prop.key: prop for one in loaded for prop in one.may_promote}
        self.promotes: tuple[Property, ...] = tuple(found.values())

    def find(self, message_type: object) -> Map | None:
        """The map for a message type; messages of other types pass as they are."""
        return self._by_source.get(message_type) if isinstance(message_type, str) else None

    def run(self, messages: Sequence[tuple[Map, Message]]) -> list[Made | MapFailure]:
        """Map messages, one after the other."""
        calls = [TimedCall(seconds=one.seconds, function=partial(_make, one, message)) for one, message in messages]
        return [
            result if isinstance(result, Made) else _failure(one, result)
            for (one, _), result in zip(messages, call_each_with_timeout(calls), strict=True)
        ]


def _make(one: Map, message: Message) -> Made:
    if message.body is not None and message.body.body.size > MAX_DOCUMENT_SIZE:
        raise _too_large(f"The message has {message.body.body.size:,} bytes")
    answer = one.transform(message)
    content_type = one.content_type
    values: dict[str, Value | None] = dict.fromkeys(prop.key for prop in one.may_promote)
    if isinstance(answer, Message):
        if answer.body is None:
            raise MapFailure("Its answer has no body.", hint=CORRECT_IT)
        values |= _promoted(one, message, answer)
        content_type = answer.body.content_type
        body = answer.body.body
    else:
        body = message.with_body(answer).body.body  # type: ignore[union-attr]
    if body.size > MAX_DOCUMENT_SIZE:
        raise _too_large(f"The map made {body.size:,} bytes")
    if one.read is not None:
        values |= _read(one, body)
    return Made(body=body, content_type=content_type, message_type=one.target, values=values)


def _promoted(one: Map, given: Message, answer: Message) -> dict[str, Value | None]:
    """What a map promoted by itself; what was there before stays without a word."""
    changed = {key: value for key, value in answer.context.promoted.items() if given.context.promoted.get(key) != value}
    if changed.pop(BTS.MessageType.key, one.target) != one.target:
        raise MapFailure(f"Its answer is of another type than its target, {one.target!r}.", hint=CORRECT_IT)
    undeclared = sorted(changed.keys() - {prop.key for prop in one.promotes})
    if undeclared:
        raise MapFailure(
            f"It promotes {', '.join(undeclared)}, which is not in its promotes.",
            hint="Add what it promotes to its promotes, so that filters may compare it.",
        )
    return dict(changed)


def _read(one: Map, body: Body) -> dict[str, Value | None]:
    """What the document promotes, as if it had come in."""
    assert one.read is not None
    rows: list[dict[str, Any]] = [row for batch in one.read.disassemble(body) for row in batch.messages.to_pylist()]
    if len(rows) != 1:
        raise MapFailure(f"The map made {len(rows)} messages; it makes one.", hint=CORRECT_IT)
    found = rows[0]["message_type"]
    if found is not None and found != one.target:
        raise another_type(one.target, found)
    return {prop.key: plain(rows[0][prop.key]) for prop in one.read.promotes}


def _too_large(what: str) -> MapFailure:
    return MapFailure(
        f"{what}.",
        why=f"The maximum size of a document before and after a map is {MAX_DOCUMENT_SIZE:,} bytes.",
        hint="Split it before it is mapped, or remove the map from the port.",
    )


def _failure(one: Map, reason: BaseException) -> MapFailure:
    if isinstance(reason, TimedOut):
        reason = MapFailure(
            f"It did not return within {one.seconds:g} seconds.",
            why="This is the time limit of the map for one message.",
            hint="Correct the map, or raise its seconds; then resume.",
        )
    named = component_failure(one.name, reason)
    return MapFailure(named.what, why=named.why, hint=named.hint)
