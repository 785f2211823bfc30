"""What a receive takes: messages that match a filter, of a message type, or of a schema."""

from __future__ import annotations

import re
from collections.abc import Sequence

from postroom.errors import BadValue
from postroom.filters.expression import Filter, any_of
from postroom.schemas import Schema
from postroom.system_properties import BTS


def to_filter(only: object) -> Filter:
    """Return the filter of the messages that a receive takes. Raise BadValue if it is none."""
    if isinstance(only, Filter):
        return only
    message_type = only.message_type if isinstance(only, Schema) else only
    if isinstance(message_type, str) and re.fullmatch(r"\S+", message_type):
        return BTS.MessageType == message_type
    raise BadValue(
        f"A receive cannot take {only!r}.",
        why="It takes a filter, a schema or the name of a message type.",
        hint="Pass a filter, such as Kind == 'order', or a message type, such as 'http://example.org#Order'.",
    )


def read_activation(activate: object) -> tuple[Filter | None, tuple[Filter, ...]]:
    """Return the filter of an activation, and its alternatives if it has several receives. What cannot activate an
    orchestration is left out: ``plan`` lists it."""
    if isinstance(activate, Filter):
        return activate, ()
    alternatives: list[Filter] = []
    for only in activate if isinstance(activate, Sequence) and not isinstance(activate, str) else ():
        try:
            alternatives.append(to_filter(only))
        except BadValue:
            continue
    return any_of(alternatives) if alternatives else None, tuple(alternatives)
