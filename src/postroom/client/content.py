"""What a message of a program consists of, besides its body."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict

from postroom.errors import BadValue
from postroom.message import Message, Part
from postroom.properties import Property

#: Values by property, or by the name of a property.
Values = Mapping[Property, object] | Mapping[str, object]


class Parts(TypedDict, total=False):
    """The body's media type, and further parts."""

    content_type: str
    parts: Iterable[Part]


class Content(Parts, total=False):
    """What a message consists of, besides its body.

    Only ``promoted`` properties take part in routing, ``written`` ones do not. Only hosts whose application properties
    equal all ``predicates`` receive the message. A deployed property may be given by its name (``{"Orders.Region":
    "EU"}``). ``to`` names a send port or a send port group that receives the message in addition to its subscribers.
    ``content_type`` is that of the body, and ``parts`` are further parts.
    """

    promoted: Values | None
    written: Values | None
    predicates: Values | None
    to: str | None


def list_messages(messages: Iterable[Message]) -> list[Message]:
    """Return the messages of a publish. Raise BadValue if they are no messages."""
    hint = 'Pass messages, such as [Message.of(b"...", promoted={Region: "EU"})].'
    if isinstance(messages, Message | bytes | str) or not isinstance(messages, Iterable):
        raise BadValue(f"publish_many needs several messages, not {type(messages).__name__}.", hint=hint)
    listed = list(messages)
    for one in listed:
        if not isinstance(one, Message):
            raise BadValue(f"publish_many needs messages, not {type(one).__name__}.", hint=hint)
    return listed
