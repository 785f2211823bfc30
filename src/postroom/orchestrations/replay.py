"""Bring a coroutine to the end of its journal."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from contextlib import nullcontext

from postroom.orchestrations.compensations import COMPENSATION
from postroom.orchestrations.definition import Orchestration
from postroom.orchestrations.execution import Execution, Watch
from postroom.orchestrations.failures import JournalMismatch
from postroom.orchestrations.journal import Command, Continuation, RecordedCommand, Turn


def replay(
    orchestration: Orchestration,
    instance_id: uuid.UUID,
    turns: Iterable[Turn],
    carried: Continuation | None = None,
    watch: Watch = nullcontext,
) -> Execution:
    """Return an execution that has handled the events of the journal.

    Raise JournalMismatch, with the place, if the code does something other than the journal has."""
    execution = Execution(orchestration, instance_id, carried, watch)
    for number, turn in enumerate(turns, 1):
        execution.unroutable |= {
            command.number: command.unroutable for command in turn.commands if command.unroutable is not None
        }
        execution.due_times |= {command.number: command.due for command in turn.commands if command.due is not None}
        why = _repeat(execution, turn)
        if why is not None:
            execution.close()
            raise JournalMismatch(
                f"{orchestration.name}, version {orchestration.version}, does not fit the journal at turn {number}, "
                f"{type(turn.event).__name__} of {turn.event.time.isoformat(timespec='seconds')}.",
                why=why,
                hint="Declare the changed code as a new version next to the old one, or restore the old code. If it "
                "has not changed, it depends on something that is not in the journal: take the time from "
                "orchestrations.now(), and everything else from a step. Then resume.",
            )
    return execution


def _repeat(execution: Execution, turn: Turn) -> str | None:
    """Handle the event of a turn. Return what is different, if anything."""
    try:
        commands = execution.handle(turn.event)
    except JournalMismatch as error:
        return error.what
    if (difference := _find_difference(turn.commands, commands)) is not None:
        return difference
    return None if execution.error is None else f"The code now fails: {execution.format_error()}"


def _find_difference(recorded: Sequence[RecordedCommand], issued: Sequence[Command]) -> str | None:
    for before, after in zip(recorded, map(RecordedCommand.of, issued), strict=False):
        if (before.number, before.kind, before.name) != (after.number, after.kind, after.name):
            return f"{_describe(before)}, but the code does '{after}' ({after.place})."
        if before.digest != after.digest:
            return f"{_describe(before)}, but the code calls it with other arguments ({after.place})."
    if len(recorded) > len(issued):
        return f"{_describe(recorded[len(issued)])}, but the code does nothing more before it waits."
    if len(issued) > len(recorded):
        after = RecordedCommand.of(issued[len(recorded)])
        return f"The code does '{after}' ({after.place}), which is not in the journal."
    return None


def _describe(command: RecordedCommand) -> str:
    described = f"The journal has '{command}' ({command.place})"
    if not command.place.endswith(COMPENSATION):
        return described
    return (
        f"A scope has failed and was compensated, so its body has to fail again: handle the exception around it, or "
        f"terminate the instance. {described}"
    )
