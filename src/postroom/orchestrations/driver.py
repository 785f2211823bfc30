"""Drive a live instance: give it events until it waits, and let the caller store each persistence point.

The driver runs over a store: the MessageBox in a host, a fake in tests. It yields persistence points and gets back the
outcome of each, so that the caller can store those of several instances in one transaction.

The coroutine runs ahead of the store: it continues after a send, although it is not known yet whether anybody
subscribes to the message. If nobody does, nothing was stored. The instance then goes back to its journal, and the send
raises.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from postroom.errors import BadValue, PipelineFailure, is_environment_error
from postroom.orchestrations.code_places import COMPENSATION
from postroom.orchestrations.definition import Orchestration
from postroom.orchestrations.execution import Execution, Watch
from postroom.orchestrations.failures import JournalFull, JournalMismatch, UnstorableResult, describe_failure
from postroom.orchestrations.journal import (
    Command,
    Continuation,
    Event,
    LookUp,
    MessageReceived,
    RecordedCommand,
    Resumed,
    RunStep,
    Send,
    Started,
    StepEnded,
    TimerFired,
    Turn,
)
from postroom.orchestrations.recorded_values import decode_value, encode_value
from postroom.processes.time_limit import TimedCall, TimedOut, call_each_with_timeout

#: The number of turns that are stored together at most.
MAX_TURNS = 100
#: The number of characters of the error of a step that are stored at most.
_MAX_ERROR_TEXT = 10_000


@dataclass(frozen=True, kw_only=True)
class PersistencePoint:
    """What is stored together: events that the instance has handled, each with the commands that it issued."""

    handled: tuple[tuple[Event, tuple[Command, ...]], ...]
    consumed: tuple[int, ...]
    """The numbers of the messages that the instance has consumed."""
    has_ended: bool
    is_waiting: bool
    """True if there is nothing more to do now, so that the instance need not stay claimed."""
    wake_at: datetime | None
    """When the next timer is due."""
    suspension: str | None = None
    """The reason why the instance suspends itself. It continues when an operator resumes it."""
    continuation: Continuation | None = None
    """What the instance continues with after ``continue_with``: its journal is deleted, and it starts again with its
    first message and this state."""
    runs_step: bool = False
    """True if a step is run next, which may take long."""
    answered: tuple[uuid.UUID, ...] = ()
    """The ids of the requests that it has answered, or sent on to other orchestrations."""
    unanswered: tuple[uuid.UUID, ...] = ()
    """The ids of the requests that it has received and will not answer."""

    @property
    def turns(self) -> list[Turn]:
        """The events and commands as the journal has them."""
        return [Turn.of(event, commands) for event, commands in self.handled]

    @property
    def commands(self) -> list[Command]:
        """The commands of all turns, in order."""
        return [command for _, commands in self.handled for command in commands]

    @property
    def sends(self) -> list[Send]:
        """The sends that are published."""
        return [command for command in self.commands if isinstance(command, Send) and command.unroutable is None]


#: The outcome of a persistence point: the reasons of sends without subscribers, by number. If it is not empty, nothing
#: was stored.
Outcome = Mapping[int, str]


class InstanceStore(Protocol):
    """Where an instance gets its messages and its journal from."""

    def get_time(self) -> datetime: ...

    @property
    def timers_until(self) -> datetime | None:
        """Timers that were due at this time may fire: every message that came before is known. None: no timer may."""
        ...

    def find_message(self, execution: Execution, taken: Collection[int]) -> Event | None:
        """Return the event of the first message that starts the instance, or that a receive waits for. ``taken`` are
        the numbers of messages that the instance has consumed, which are not stored yet."""
        ...

    def read_journal(self) -> Iterable[Turn]:
        """Return the turns that are stored."""
        ...


class Driver:
    """Drives one instance. ``execution`` is the live instance, which is replaced when it goes back."""

    def __init__(self, execution: Execution, store: InstanceStore) -> None:
        self.execution = execution
        self._store = store
        #: What is not stored yet: the events that were handled, and the numbers of the messages among them.
        self._handled: list[tuple[Event, tuple[Command, ...]]] = []
        self._taken: list[int] = []

    def run(self) -> Generator[PersistencePoint, Outcome, None]:
        """Handle all events that there are now. Yield each persistence point, and continue with its outcome.

        The caller stores everything and publishes the messages, all or nothing. If the orchestration raises, the turn
        in which it did so is not stored, and ``execution.error`` is set. Raise JournalFull if there is more to do, but
        the journal is full, and UnstorableResult after a step whose result cannot be stored. Everything before is
        stored then. Raise the error of a lookup that cannot be read. Nothing since the last persistence point is stored
        then."""
        has_result = False
        if self.execution.suspension is not None:  # it is claimed, so an operator has resumed it
            self._handle(Resumed(time=self._store.get_time()))
        while True:
            self._check_journal()
            has_more = self._has_event() if has_result else self._advance()
            execution = self.execution
            if execution.continuation is not None:
                has_result = False
                yield from self._continue()
                continue
            has_failed = execution.error is not None
            step = None if self._has_stopped or has_failed else next(iter(execution.steps.values()), None)
            is_done = not has_more and step is None
            if (self._handled or (is_done and not has_failed)) and not (
                yield from self._persist(is_waiting=is_done and not has_failed, runs_step=step is not None)
            ):
                continue
            if is_done:
                return
            has_result = step is not None
            if step is not None:
                # Its result is stored right after it, before any other event is handled.
                self._check_journal()
                limit = execution.orchestration.journal_limits.size
                self._handle(run_step(step, self._store.get_time, max_size=limit))

    def _has_event(self) -> bool:
        """Return True if there is an event that the instance can handle now."""
        execution = self.execution
        return not self._has_stopped and not execution.steps and self._find_event() is not None

    @property
    def _has_stopped(self) -> bool:
        """True if the instance handles no more events, because it has ended or has suspended itself."""
        return self.execution.has_ended or self.execution.suspension is not None

    def _check_journal(self) -> None:
        execution = self.execution
        limits, name = execution.orchestration.journal_limits, execution.orchestration.name
        if self._handled or (execution.journal_events < limits.events and execution.journal_size < limits.size):
            return
        if self._has_stopped or (not execution.steps and self._find_event() is None):
            return
        raise JournalFull(
            f"The journal of this instance of {name!r} is full: {execution.journal_events:,} events and about "
            f"{execution.journal_size:,} characters.",
            why=f"Its limits are {limits.events:,} events and {limits.size:,} characters.",
            hint="Call orchestrations.continue_with in the loop of a new version, which starts a fresh journal. To "
            "finish this instance, raise journal_limits of its version, apply it, and resume.",
        )

    def _advance(self) -> bool:
        """Handle events until the instance waits, or a step is to be run. Return True if there may be more events."""
        execution = self.execution
        while not self._has_stopped and not execution.steps:
            if len(self._handled) == MAX_TURNS:
                return True
            event = self._find_event()
            if event is None:
                return False
            self._handle(event)
            if execution.error is not None:
                return False
        return False

    def _find_event(self) -> Event | None:
        # First: a message that arrived before the timeout was detected is not too late.
        event = self._store.find_message(self.execution, self._taken)
        if event is not None:
            return event
        until = self._store.timers_until
        for due, number in self.execution.list_timers()[:1]:
            if until is not None and due <= until:
                return TimerFired(time=self._store.get_time(), number=number)
        return None

    def _handle(self, event: Event) -> None:
        commands = self.execution.handle(event)
        if self.execution.lookup_error is not None:
            raise self.execution.lookup_error
        if self.execution.error is None:
            self._handled.append((event, commands))
            if isinstance(event, Started | MessageReceived):
                self._taken.append(event.seq)

    def _persist(self, *, is_waiting: bool, runs_step: bool = False) -> Generator[PersistencePoint, Outcome, bool]:
        """Yield the pending turns. Return False if the instance had to go back, because a send has no subscribers."""
        execution = self.execution
        continuation = execution.continuation
        suspension = execution.suspension
        timers = execution.list_timers()
        has_ended = execution.has_ended and execution.error is None and continuation is None
        unroutable = yield PersistencePoint(
            handled=tuple(self._handled),
            consumed=tuple(self._taken),
            has_ended=has_ended,
            is_waiting=is_waiting,
            wake_at=timers[0][0] if timers else None,
            suspension=None if suspension is None or execution.error is not None else suspension.reason,
            continuation=continuation,
            runs_step=runs_step,
            answered=tuple(execution.requests.take_settled()),
            unanswered=tuple(execution.list_unanswered()) if has_ended or continuation is not None else (),
        )
        handled, self._handled, self._taken = self._handled, [], []
        if unroutable:
            self._go_back(handled, unroutable)
        return not unroutable

    def _continue(self) -> Generator[PersistencePoint, Outcome, None]:
        """Store what the instance did, and start it again with a fresh journal."""
        before = self.execution
        if (yield from self._persist(is_waiting=False)):
            before.close()
            self.execution = Execution(before.orchestration, before.instance_id, before.continuation, before.watch)

    def _go_back(self, handled: Sequence[tuple[Event, tuple[Command, ...]]], unroutable: Mapping[int, str]) -> None:
        """Replay the journal, and handle the pending events again, up to the first send that nobody subscribes to.

        After it the orchestration may do something else, so the other sends are not checked yet."""
        failed = self.execution
        failed.close()
        numbers = [command.number for _, commands in handled for command in commands]
        first = next(number for number in numbers if number in unroutable)
        self.execution = replay(
            failed.orchestration, failed.instance_id, self._store.read_journal(), failed.carried, failed.watch
        )
        self.execution.unroutable |= failed.unroutable | {first: unroutable[first]}
        # The same answers as before: with others it could do something else.
        self.execution.entries |= {
            command.number: command.entry
            for _, commands in handled
            for command in commands
            if isinstance(command, LookUp)
        }
        for event, commands in handled:
            self._handle(event)
            if self.execution.error is not None or any(command.number == first for command in commands):
                return


def drive(driver: Driver, persist: Callable[[PersistencePoint], Outcome]) -> None:
    """Drive one instance. ``persist`` stores a persistence point and returns its outcome."""
    points = driver.run()
    point = next(points, None)
    while point is not None:
        outcome = persist(point)
        try:
            point = points.send(outcome)
        except StopIteration:
            return


def run_step(step: RunStep, get_time: Callable[[], datetime], *, max_size: int) -> StepEnded:
    """Run a step. Its result must be something that the journal can store, of at most ``max_size`` characters. The
    orchestration gets what a replay gets, such as a tuple for a named tuple.

    Raise UnstorableResult if the journal cannot store the result. The step has had its effect then, so it is no
    failure that the orchestration may answer with another attempt."""
    try:
        result = _call(step)
    except TimedOut:  # of this thread
        raise
    except BaseException as error:
        if step.is_pure and is_environment_error(error):
            raise
        return StepEnded(
            time=get_time(),
            number=step.number,
            error=_describe(error, is_secret=step.is_secret),
            failure=describe_failure(error) if step.is_pure and isinstance(error, PipelineFailure) else None,
        )
    return StepEnded(time=get_time(), number=step.number, value=_copy_result(step, result, max_size))


def _copy_result(step: RunStep, result: object, max_size: int) -> object:
    try:
        text = encode_value(result)
        if len(text) > max_size:
            raise BadValue(
                f"The result has {len(text):,} characters, and the journal can have {max_size:,}.",
                hint="Store the data elsewhere, and return a reference to it.",
            )
        return decode_value(text)
    except TimedOut:
        raise
    except BaseException as error:  # a type of a library, such as a kind of dict, can raise anything
        is_known = isinstance(error, BadValue)
        raise UnstorableResult(
            f"The step {step.name} has run, but its result cannot be stored.",
            why=str(error) if is_known else _describe(error, is_secret=step.is_secret),
            hint="If the instance is resumed, the step runs again with the same step_key(). First let the function "
            "return something else, and apply it. Or terminate the instance.",
        ) from None


def _describe(error: BaseException, *, is_secret: bool) -> str:
    """Return the type and the text of an error of a step. The text can quote what the step works with."""
    name = type(error).__name__
    if is_secret:
        return name
    try:
        text = str(error)
    except BaseException:
        text = "its text cannot be read"
    if len(text) > _MAX_ERROR_TEXT:
        text = f"{text[:_MAX_ERROR_TEXT]}... ({len(text):,} characters)"
    return f"{name}: {text}"


def _call(step: RunStep) -> object:
    if step.timeout is None:
        return step.call()
    [result] = call_each_with_timeout([TimedCall(seconds=step.timeout, function=step.call)])
    if isinstance(result, TimedOut):
        raise TimeoutError(f"it did not return within {step.timeout:g} seconds")
    if isinstance(result, BaseException):
        raise result
    return result


# -- replay ------------------------------------------------------------------------------------------------------------


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
    execution.is_replaying = True
    for number, turn in enumerate(turns, 1):
        execution.unroutable |= {
            command.number: command.unroutable for command in turn.commands if command.unroutable is not None
        }
        execution.due_times |= {command.number: command.due for command in turn.commands if command.due is not None}
        execution.entries |= {command.number: command.entry for command in turn.commands if command.kind == LookUp.kind}
        why = _repeat(execution, turn)
        if why is not None:
            execution.close()
            mismatch = JournalMismatch(
                f"{orchestration.name}, version {orchestration.version}, does not fit the journal at turn {number}, "
                f"{type(turn.event).__name__} of {turn.event.time.isoformat(timespec='seconds')}.",
                why=why,
                hint="Declare the changed code as a new version next to the old one, or restore the old code. If it "
                "has not changed, it depends on something that is not in the journal: take the time from "
                "orchestrations.now(), and everything else from a step. Then resume.",
            )
            mismatch.turn = number
            raise mismatch
    execution.requests.take_settled()  # stored with the journal
    execution.is_replaying = False
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
    for before, command in zip(recorded, issued, strict=False):
        after = RecordedCommand.of(command)
        if not command.repeats(before):
            return f"{_describe_recorded(before)}, but the code does '{after}' ({after.place})."
        if before.digest != after.digest:
            return f"{_describe_recorded(before)}, but the code calls it with other arguments ({after.place})."
    if len(recorded) > len(issued):
        return f"{_describe_recorded(recorded[len(issued)])}, but the code does nothing more before it waits."
    if len(issued) > len(recorded):
        after = RecordedCommand.of(issued[len(recorded)])
        return f"The code does '{after}' ({after.place}), which is not in the journal."
    return None


def _describe_recorded(command: RecordedCommand) -> str:
    described = f"The journal has '{command}' ({command.place})"
    if not command.place.endswith(COMPENSATION):
        return described
    return (
        f"A scope has failed and was compensated, so its body has to fail again: handle the exception around it, or "
        f"terminate the instance. {described}"
    )
