"""The story of an orchestration instance, from its journal: what it received, sent and did, and what it waits for now.

The values that steps returned are left out: they can be as confidential as messages. Values of sensitive properties in
the filters that it waits with are redacted.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from postroom.messagebox.connection import Connection
from postroom.messagebox.orchestrations import read_orchestrations, read_stored_journal, read_waiting
from postroom.operations.subscriptions import list_subscriptions
from postroom.orchestrations.journal import RecordedCommand
from postroom.properties import dotted_name, split_key

#: What a line of a story is about: a message that the instance received or sent, a timer, a step that it ran, an
#: entry that it looked up, a correlation set that it initialised, or that it suspended itself or was resumed.
StoryKind = Literal["received", "sent", "timer", "step", "lookup", "correlation", "state"]


@dataclass(frozen=True, kw_only=True)
class StoryLine:
    """Something that happened to an instance, or that it did. ``place`` is the file and line of the orchestration."""

    time: datetime
    kind: StoryKind
    what: str
    has_failed: bool = False
    place: str | None = None
    message_id: uuid.UUID | None = None
    """The message that the instance received or sent."""
    due: datetime | None = None
    """When the timer is due."""


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Something that an instance waits for. Messages match a filter, a timer is due at a time, a step has a place."""

    kind: Literal["message", "timer", "step"]
    what: str
    filter: str | None = None
    due: datetime | None = None
    place: str | None = None


@dataclass(frozen=True, kw_only=True)
class Story:
    """The story of an instance. ``story`` is None if the login may not read journals."""

    story: Sequence[StoryLine] | None
    waits_for: Sequence[Wait]
    journals: int
    """How often the instance has started again with a fresh journal. The story begins with the last one."""
    unreceived: int
    """The messages that were routed to the instance and that it has not received."""


def read_story(connection: Connection, instance_id: uuid.UUID) -> Story | None:
    """Return the story of an instance. Return None if it is no instance of an orchestration."""
    instance = read_waiting(connection, instance_id)
    if instance is None:
        return None
    orchestrations = read_orchestrations(connection)
    convoy = next((one.convoy for one in orchestrations if one.service_id == instance.service_id), ())
    journal = read_stored_journal(connection, instance_id) if instance.can_read_journal else None
    turns = [] if journal is None else journal.turns
    subscriptions = list_subscriptions(connection, instance_id=instance_id)
    names = ", ".join(dotted_name(*split_key(key)) for key in convoy)
    waits = [
        *(
            Wait(kind="message", what=f"messages that match {subscription.filter}", filter=subscription.filter)
            for subscription in subscriptions
        ),
        *([Wait(kind="message", what=f"messages of its convoy, by {names}")] if convoy else []),
        *([] if instance.wake_at is None else [Wait(kind="timer", what="its next timer", due=instance.wake_at)]),
        *_list_running_steps(turns),
    ]
    return Story(
        story=tuple(_build_lines(turns)) if instance.can_read_journal else None,
        waits_for=tuple(waits),
        journals=instance.journals,
        unreceived=instance.unreceived,
    )


def _build_lines(turns: Sequence[Mapping[str, Any]]) -> Iterator[StoryLine]:
    """Yield a line for each event of the journal, followed by the commands that it led to. They have the time of the
    event, because the clock of an instance changes only with an event."""
    issued: dict[int, Mapping[str, Any]] = {}
    for turn in turns:
        time = datetime.fromisoformat(turn["time"])
        yield _build_event_line(time, turn["event"], issued)
        for command in turn["commands"]:
            issued[command["number"]] = command
            yield _build_command_line(time, RecordedCommand.from_json(command))


def _build_event_line(time: datetime, event: Mapping[str, Any], issued: Mapping[int, Mapping[str, Any]]) -> StoryLine:
    match event:
        case {"kind": "started", "message": str(message_id)}:
            activation = event.get("activation")
            what = "activated by a message" + (f" that matches {activation}" if activation else "")
            return StoryLine(time=time, kind="received", what=what, message_id=uuid.UUID(message_id))
        case {"kind": "message", "correlation": int(number), "message": str(message_id)}:
            by = f"by {issued[number]['name']}" if number in issued else "of its convoy"
            what = f"received a message {by}"
            return StoryLine(time=time, kind="received", what=what, message_id=uuid.UUID(message_id))
        case {"kind": "timer", "number": int(number)}:
            return StoryLine(time=time, kind="timer", what="its timer was due", place=issued[number]["place"])
        case {"kind": "step", "number": int(number), "error": str(error)}:
            what = f"step {issued[number]['name']} failed: {error}"
            return StoryLine(time=time, kind="step", what=what, has_failed=True, place=issued[number]["place"])
        case {"kind": "step", "number": int(number)}:
            what = f"step {issued[number]['name']} ended"
            return StoryLine(time=time, kind="step", what=what, place=issued[number]["place"])
        case {"kind": "resumed"}:
            return StoryLine(time=time, kind="state", what="resumed by an operator")
    raise ValueError(f"{event!r} is not an event of a journal")


def _build_command_line(time: datetime, command: RecordedCommand) -> StoryLine:
    kind, what = _describe_command(command)
    return StoryLine(
        time=time,
        kind=kind,
        what=what,
        has_failed=command.unroutable is not None,
        place=command.place,
        message_id=command.message if command.unroutable is None else None,
        due=command.due,
    )


def _describe_command(command: RecordedCommand) -> tuple[StoryKind, str]:
    match command.kind:
        case "send" | "start" as kind:
            sent = f"sent a message to {command.name}" if command.name else "published a message"
            if kind == "start":
                sent = f"started orchestration {command.name}"
            return "sent", sent if command.unroutable is None else f"{sent}, which failed: {command.unroutable}"
        case "correlate":
            return "correlation", f"subscribed to messages by {command.name}"
        case "forget":
            return "correlation", f"needs no more messages by {command.name}"
        case "timer":
            return "timer", "started a timer"
        case "step":
            return "step", f"started step {command.name}"
        case "cancel":
            return "step", f"cancelled step {command.name}"
        case "lookup":
            found = "an entry" if command.entry is not None else "nothing"
            return "lookup", f"looked up {command.name}, and found {found}"
        case "suspend":
            return "state", "suspended itself"
    raise ValueError(f"{command!r} is not a command of a journal")


def _list_running_steps(turns: Sequence[Mapping[str, Any]]) -> list[Wait]:
    ended = {turn["event"]["number"] for turn in turns if turn["event"]["kind"] == "step"}
    ended |= {command.get("step") for turn in turns for command in turn["commands"]}
    return [
        Wait(kind="step", what=f"step {command['name']}", place=command["place"])
        for turn in turns
        for command in turn["commands"]
        if command["kind"] == "step" and command["number"] not in ended
    ]
