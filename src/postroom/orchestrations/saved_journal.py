"""A journal in a file, with everything that a replay of it needs.

``instance_id`` returns the id of the instance, and ``carried_state`` what it has carried over. So these are saved, too,
and the received messages with their bodies.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from postroom.errors import BadValue
from postroom.message import Message
from postroom.orchestrations.journal import Continuation, Turn
from postroom.orchestrations.recorded_values import from_recorded, message_from_json, message_to_json, to_recorded


@dataclass(frozen=True, kw_only=True)
class SavedJournal:
    """The journal of an instance, and the messages that the instance received."""

    orchestration: str
    version: int
    instance_id: uuid.UUID
    carried: Continuation
    turns: Sequence[Mapping[str, Any]]
    """The turns as they are stored, as JSON values."""
    messages: Sequence[Message]
    redacted: tuple[str, ...] = ()
    """The names of properties whose values were replaced, because they are sensitive."""

    def read_turns(self) -> Iterator[Turn]:
        """Yield the turns with their messages."""
        known = {message.message_id: message for message in self.messages}
        return (Turn.from_json(stored, known) for stored in self.turns)

    def to_json(self) -> dict[str, Any]:
        """Return the journal as JSON values."""
        return {
            "orchestration": self.orchestration,
            "version": self.version,
            "instance_id": str(self.instance_id),
            "journals": self.carried.journal,
            "carried": to_recorded(self.carried.state),
            "redacted": list(self.redacted),
            "turns": list(self.turns),
            "messages": [message_to_json(message) for message in self.messages],
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> SavedJournal:
        """The inverse of ``to_json``."""
        return cls(
            orchestration=stored["orchestration"],
            version=stored["version"],
            instance_id=uuid.UUID(stored["instance_id"]),
            carried=Continuation(journal=stored["journals"], state=from_recorded(stored["carried"])),
            redacted=tuple(stored["redacted"]),
            turns=stored["turns"],
            messages=[message_from_json(message) for message in stored["messages"]],
        )


def read_journal(file: Path) -> SavedJournal:
    """Read a journal that ``postroom instance save-journal`` has written. Raise BadValue if it is not one."""
    try:
        return SavedJournal.from_json(json.loads(file.read_bytes()))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise BadValue(
            f"{file} is not a saved journal.",
            why=f"{type(error).__name__}: {error}.",
            hint="Save one with: postroom instance save-journal ID FILE.",
        ) from None
