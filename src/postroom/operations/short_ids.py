"""Short ids: the first digits of an id, as in Git. They must identify one id."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

from postroom.errors import BadValue, NotFound
from postroom.messagebox.connection import Connection
from postroom.messagebox.instances import InstanceQuery, list_instances
from postroom.messagebox.short_ids import ShortIdKind as ShortIdKind
from postroom.messagebox.short_ids import find_ids

_DIGITS = 32
_MIN_DIGITS = 4
_MAX_SHOWN = 5


@dataclass(frozen=True)
class ShortId:
    """The start of an id, or a whole id. All ids from ``first`` to ``last`` have this start."""

    text: str
    first: uuid.UUID
    last: uuid.UUID

    @classmethod
    def parse(cls, text: str) -> ShortId:
        """Parse hexadecimal digits, with or without hyphens. Raise BadValue for anything else."""
        digits = text.strip().strip("{}").replace("-", "")
        if not re.fullmatch(f"[0-9a-fA-F]{{{_MIN_DIGITS},{_DIGITS}}}", digits):
            raise BadValue(
                f"{text!r} is not an id.", hint=f"Give the id, or at least its first {_MIN_DIGITS} hexadecimal digits."
            )
        return cls(text, uuid.UUID(digits.ljust(_DIGITS, "0")), uuid.UUID(digits.ljust(_DIGITS, "f")))

    @property
    def is_whole(self) -> bool:
        return self.first == self.last


#: How to find the id of what no longer exists.
_NOT_FOUND_HINTS: dict[ShortIdKind, str] = {
    "message": "A message is deleted after its last instance completes. See 'postroom message list'.",
    "instance": "An instance is deleted when it completes or is terminated. See 'postroom instance list'.",
    "subscriber": "A subscription is deleted with its instance. See 'postroom subscription list'.",
    "interchange": "Interchanges are found by their messages, which may be deleted. See 'postroom message list'.",
}


def find_id(connection: Connection, given: ShortId, kind: ShortIdKind) -> uuid.UUID:
    """Return the whole id. Raise NotFound if no id starts with these digits, BadValue if several do."""
    if given.is_whole:
        return given.first
    found = find_ids(connection, kind, given.first, given.last, limit=_MAX_SHOWN + 1)
    if not found:
        raise NotFound(f"No {kind} has an id that starts with {given.text}.", hint=_NOT_FOUND_HINTS[kind])
    if 1 < len(found) <= _MAX_SHOWN:
        # The report about an instance shares its first digits, and the instance is meant.
        found = [each for each in found if not each.of_report] or found
    if len(found) > 1:
        shown = [each.id for each in found[:_MAX_SHOWN]]
        described = _describe_instances(connection, shown) if kind == "instance" else {}
        more = ["and more"] if len(found) > _MAX_SHOWN else []
        raise BadValue(
            f"More than one {kind} has an id that starts with {given.text}.",
            why="\n".join([*(described.get(each, str(each)) for each in shown), *more]),
            hint="Give more digits, or the whole id.",
        )
    return found[0].id


def _describe_instances(connection: Connection, ids: list[uuid.UUID]) -> dict[uuid.UUID, str]:
    """Return a line for each instance. The instances of one message often differ only in the last digits."""
    return {
        each.instance_id: f"{each.instance_id}: {each.display_name}, {each.state}"
        for each in list_instances(connection, InstanceQuery(ids=ids))
    }
