"""How much of its journal, and of the memory, a turn of an instance needs, approximately."""

from __future__ import annotations

from collections.abc import Sequence

from postroom.orchestrations.journal import Command, Event, MessageReceived, Started, StepEnded
from postroom.orchestrations.recorded_values import measure_value

#: The approximate number of characters of an event and of a command in the journal.
_EVENT_SIZE, _COMMAND_SIZE = 150, 200


def measure_turn(event: Event, commands: Sequence[Command]) -> int:
    """Return the approximate number of characters of a turn in the journal. Only the results of steps are large."""
    value = measure_value(event.value) + len(event.error or "") if isinstance(event, StepEnded) else 0
    return _EVENT_SIZE + _COMMAND_SIZE * len(commands) + value


def measure_message(event: Event) -> int:
    """Return the number of bytes of the message that an event brings."""
    if not isinstance(event, Started | MessageReceived):
        return 0
    return sum(part.body.size for part in event.message.parts)
