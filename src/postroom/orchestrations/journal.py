"""The journal of an instance: what happened to it, and what it did, in turns.

An instance is driven by events: it starts, a message arrives, a timer is due, a step has ended. The coroutine handles
one event until it waits again, and issues commands: send, wait for a timer, run a step. An event and its commands are a
turn. The events are all that is needed to replay the coroutine. The commands are kept to find out that the code has
changed, and to show what the instance did.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from postroom.filters.expression import Filter
from postroom.message import Message
from postroom.orchestrations.recorded_values import (
    from_recorded,
    measure_value,
    message_from_json,
    message_to_json,
    to_recorded,
)


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """What an instance continues with after ``continue_with``: the number of its earlier journals, and the state."""

    journal: int = 0
    state: object = None


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happens to an instance at ``time``."""

    time: datetime


@dataclass(frozen=True, kw_only=True)
class Started(Event):
    """The instance is activated by a message. The ids, tokens and random numbers of this journal are derived from the
    seed. It is random, because all hosts can read the id of an instance, and whoever knows a token can answer."""

    message: Message
    seed: uuid.UUID = field(default_factory=uuid.uuid4)
    seq: int = 0
    activation: str | None = None
    """The filter of the activating receive that takes the message, if there are several."""


@dataclass(frozen=True, kw_only=True)
class MessageReceived(Event):
    """A receive gets a message. ``correlation`` is the number of the correlation set, 0 for the convoy."""

    correlation: int
    message: Message
    seq: int = 0
    """The number of the message in the queue. Not in the journal."""


@dataclass(frozen=True, kw_only=True)
class TimerFired(Event):
    """The timer with this number is due."""

    number: int


@dataclass(frozen=True, kw_only=True)
class StepEnded(Event):
    """The step with this number has returned a value, or has failed with an error."""

    number: int
    value: object = None
    error: str | None = None
    failure: Mapping[str, str] | None = None
    """The texts of the failure of a map or a pipeline, which the orchestration gets as it is."""


@dataclass(frozen=True, kw_only=True)
class Resumed(Event):
    """An operator resumes the instance, which had suspended itself."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """Something that an instance did. Commands are numbered in order."""

    number: int
    place: str
    """The file and line of the orchestration."""

    #: The kind of the command in the journal.
    kind = ""

    @property
    def name(self) -> str:
        """The name of what the command is about, such as a port. A replay has to issue a command with the same name."""
        return ""

    def repeats(self, recorded: RecordedCommand) -> bool:
        """Return True if this is the command that the journal has. What was renamed has its old name there."""
        names = (self.name, self.old_name) if isinstance(self, Start) else (self.name,)
        return (self.number, self.kind) == (recorded.number, recorded.kind) and recorded.name in names


@dataclass(frozen=True, kw_only=True)
class Send(Command):
    """Publish a message: through a bound port, or to all subscribers if ``port`` is None."""

    kind = "send"
    message: Message
    port: str | None
    direct_port: str | None = None
    """The name of the direct port that the message is addressed to."""
    call: str = "send"
    """What the orchestration has called: send, deliver or request."""
    unroutable: str | None = None
    """The reason why the orchestration got an exception instead: the message has no subscribers."""

    @property
    def name(self) -> str:
        return self.port or self.direct_port or ""


@dataclass(frozen=True, kw_only=True)
class Start(Send):
    """Start an instance of another orchestration with a message."""

    kind = "start"
    orchestration: str
    old_name: str | None = None
    """The name of the orchestration before it was renamed."""

    @property
    def name(self) -> str:
        return self.orchestration


@dataclass(frozen=True, kw_only=True)
class Correlate(Command):
    """Initialise a correlation set: messages that match the filter are routed to the instance from now on."""

    kind = "correlate"
    filter: Filter
    acknowledged_by: str | None = None
    """The send port or group whose acknowledgements these are. Other subscribers of the message send some, too."""

    @property
    def name(self) -> str:
        return ", ".join(sorted(predicate.property.dotted_name for group in self.filter.groups for predicate in group))


@dataclass(frozen=True, kw_only=True)
class Forget(Correlate):
    """Receive nothing more for the correlation set with this filter. Its first value identifies the set: no other set
    of the instance uses it."""

    kind = "forget"


@dataclass(frozen=True, kw_only=True)
class StartTimer(Command):
    """Wait until ``due``."""

    kind = "timer"
    due: datetime


@dataclass(frozen=True, kw_only=True)
class RunStep(Command):
    """Call a function with side effects. It is called again after a crash, with the same idempotency key."""

    kind = "step"
    step_name: str
    call: Callable[[], object] = field(compare=False)
    timeout: float | None = None
    digest: str | None = None
    """The digest of its arguments. None if they are confidential."""
    is_secret: bool = False
    """True if the text of its errors is confidential. Its result is shown nowhere in any case."""
    is_pure: bool = False
    """True for a map or a pipeline, which has no side effects: its failures are raised as they are, and errors of the
    environment repeat it."""

    @property
    def name(self) -> str:
        return self.step_name


@dataclass(frozen=True, kw_only=True)
class CancelStep(Command):
    """Do not run a step that was issued and has not begun."""

    kind = "cancel"
    step: RunStep

    @property
    def name(self) -> str:
        return self.step.name


@dataclass(frozen=True, kw_only=True)
class LookUp(Command):
    """Read the entry of a lookup. Its answer is in the journal, because the entry may change."""

    kind = "lookup"
    lookup: str
    digest: str
    """The digest of the key."""
    entry: Message | None = field(compare=False)

    @property
    def name(self) -> str:
        return self.lookup


@dataclass(frozen=True, kw_only=True)
class Suspend(Command):
    """Wait until an operator resumes the instance."""

    kind = "suspend"
    reason: str


@dataclass(frozen=True, kw_only=True)
class RecordedCommand:
    """A command as the journal has it."""

    number: int
    kind: str
    name: str
    place: str
    unroutable: str | None = None
    message: uuid.UUID | None = None
    """The id of the message of a send."""
    due: datetime | None = None
    """When a timer is due."""
    digest: str | None = None
    """The digest of the arguments of a step, or of the key of a lookup."""
    step: int | None = None
    """The number of the step that is cancelled."""
    entry: Message | None = None
    """The answer of a lookup."""

    @classmethod
    def of(cls, command: Command) -> RecordedCommand:
        return cls(
            number=command.number,
            kind=command.kind,
            name=command.name,
            place=command.place,
            unroutable=command.unroutable if isinstance(command, Send) else None,
            message=command.message.message_id if isinstance(command, Send) else None,
            due=command.due if isinstance(command, StartTimer) else None,
            digest=command.digest if isinstance(command, RunStep | LookUp) else None,
            step=command.step.number if isinstance(command, CancelStep) else None,
            entry=command.entry if isinstance(command, LookUp) else None,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the command as JSON values. What it does not have is left out."""
        optional = {
            "unroutable": self.unroutable,
            "message": None if self.message is None else str(self.message),
            "due": None if self.due is None else self.due.isoformat(),
            "digest": self.digest,
            "step": self.step,
            "entry": None if self.entry is None else message_to_json(self.entry),
        }
        return {
            "number": self.number,
            "kind": self.kind,
            "name": self.name,
            "place": self.place,
            **{key: value for key, value in optional.items() if value is not None},
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> RecordedCommand:
        """The inverse of ``to_json``."""
        message, due, entry = stored.get("message"), stored.get("due"), stored.get("entry")
        return cls(
            number=stored["number"],
            kind=stored["kind"],
            name=stored["name"],
            place=stored["place"],
            unroutable=stored.get("unroutable"),
            message=None if message is None else uuid.UUID(message),
            due=None if due is None else datetime.fromisoformat(due),
            digest=stored.get("digest"),
            step=stored.get("step"),
            entry=None if entry is None else message_from_json(entry),
        )

    def __str__(self) -> str:
        return " ".join(filter(None, (self.kind, self.name)))


@dataclass(frozen=True, kw_only=True)
class Turn:
    """An event, and the commands that the instance issued until it waited again."""

    event: Event
    commands: tuple[RecordedCommand, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the turn as JSON values. Messages are stored by their ids."""
        return {
            "time": self.event.time.isoformat(),
            "event": _event_to_json(self.event),
            "commands": [command.to_json() for command in self.commands],
        }

    @classmethod
    def of(cls, event: Event, commands: Iterable[Command]) -> Turn:
        return cls(event=event, commands=tuple(map(RecordedCommand.of, commands)))

    @classmethod
    def from_json(cls, stored: Mapping[str, Any], messages: Mapping[uuid.UUID, Message]) -> Turn:
        """The inverse of ``to_json``. ``messages`` has the received messages by id."""
        event = _event_from_json(datetime.fromisoformat(stored["time"]), stored["event"], messages)
        return cls(event=event, commands=tuple(map(RecordedCommand.from_json, stored["commands"])))


def _event_to_json(event: Event) -> dict[str, Any]:
    match event:
        case Started(message=message, seed=seed, activation=activation):
            started = {"kind": "started", "message": str(message.message_id), "seed": str(seed)}
            return started if activation is None else {**started, "activation": activation}
        case MessageReceived(correlation=correlation, message=message):
            return {"kind": "message", "correlation": correlation, "message": str(message.message_id)}
        case TimerFired(number=number):
            return {"kind": "timer", "number": number}
        case StepEnded(number=number, value=value, error=None):
            return {"kind": "step", "number": number, "value": to_recorded(value)}
        case StepEnded(number=number, error=error, failure=failure):
            stored = {"kind": "step", "number": number, "error": error}
            return stored if failure is None else {**stored, "failure": dict(failure)}
        case Resumed():
            return {"kind": "resumed"}
    raise AssertionError(event)


def _event_from_json(time: datetime, stored: Mapping[str, Any], messages: Mapping[uuid.UUID, Message]) -> Event:
    match stored:
        case {"kind": "started", "message": str(id), "seed": str(seed)}:
            message, activation = messages[uuid.UUID(id)], stored.get("activation")
            return Started(time=time, message=message, seed=uuid.UUID(seed), activation=activation)
        case {"kind": "message", "correlation": int(correlation), "message": str(id)}:
            return MessageReceived(time=time, correlation=correlation, message=messages[uuid.UUID(id)])
        case {"kind": "timer", "number": int(number)}:
            return TimerFired(time=time, number=number)
        case {"kind": "step", "number": int(number), "error": str(error)}:
            return StepEnded(time=time, number=number, error=error, failure=stored.get("failure"))
        case {"kind": "step", "number": int(number), "value": value}:
            return StepEnded(time=time, number=number, value=from_recorded(value))
        case {"kind": "resumed"}:
            return Resumed(time=time)
    raise ValueError(f"{stored!r} is not an event of a journal")


#: The approximate number of characters of an event, of a command and of the context of an entry in the journal.
_EVENT_SIZE, _COMMAND_SIZE, _ENTRY_SIZE = 150, 200, 500


def measure_turn(event: Event, commands: Sequence[Command]) -> int:
    """Return the approximate number of characters of a turn in the journal. Only the results of steps and the entries
    of lookups are large."""
    value = measure_value(event.value) + len(event.error or "") if isinstance(event, StepEnded) else 0
    entries = (command.entry for command in commands if isinstance(command, LookUp) and command.entry is not None)
    value += sum(_ENTRY_SIZE + _count_bytes(entry) * 4 // 3 for entry in entries)
    return _EVENT_SIZE + _COMMAND_SIZE * len(commands) + value


def measure_message(event: Event) -> int:
    """Return the number of bytes of the message that an event brings."""
    return _count_bytes(event.message) if isinstance(event, Started | MessageReceived) else 0


def _count_bytes(message: Message) -> int:
    return sum(part.body.size for part in message.parts)
