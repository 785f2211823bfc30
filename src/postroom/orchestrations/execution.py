"""A live instance: the coroutine of an orchestration, driven by events. It has no database, no threads and no clock.

    execution = Execution(orchestration, instance_id)
    commands = execution.handle(Started(time=now, message=order))    # runs until the coroutine waits
    number = execution.find_receive(offer)                           # which receive waits for this message
    commands = execution.handle(MessageReceived(time=now, correlation=number, message=offer))

The same events give the same commands. That is all that a replay needs.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, wraps
from types import CoroutineType
from typing import Any, NoReturn, ParamSpec, TypeVar, cast

from postroom.errors import BadValue, RoutingFailure, StateError
from postroom.filters.evaluate import matches
from postroom.filters.expression import Filter
from postroom.filters.text import format_filter
from postroom.hops import add_hop
from postroom.message import Context, Message, Part
from postroom.orchestrations.code_places import describe_compensations, format_traceback
from postroom.orchestrations.definition import Orchestration
from postroom.orchestrations.event_loop import InstanceLoop, install_hooks
from postroom.orchestrations.failures import JournalMismatch, StepFailed, to_failure
from postroom.orchestrations.journal import (
    CancelStep,
    Command,
    Continuation,
    Correlate,
    Event,
    Forget,
    LookUp,
    MessageReceived,
    Resumed,
    RunStep,
    Send,
    Start,
    Started,
    StartTimer,
    StepEnded,
    Suspend,
    TimerFired,
    measure_message,
    measure_turn,
)
from postroom.orchestrations.open_requests import OpenRequests
from postroom.orchestrations.recorded_values import measure_value
from postroom.system_properties import ENGINE_PROPERTIES, ENGINE_PROPERTY_HINT, describe_engine_properties
from postroom.values import Value

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: Creates the context that the code of an orchestration runs in.
Watch = Callable[[], AbstractContextManager[None]]
#: The number of the correlation set of a convoy, whose messages match the activation subscription.
CONVOY = 0

_NOTHING_CARRIED = Continuation()


@dataclass(frozen=True, kw_only=True)
class _Receive:
    """A receive that waits. With ``only`` it takes the messages that match this filter."""

    future: asyncio.Future[Message]
    only: Filter | None

    def takes(self, message: Message) -> bool:
        return _is_taken(self.only, message)


class Execution:
    """One instance in memory. ``unroutable`` has the reasons of sends without subscribers, by command number,
    ``due_times`` when the timers of its journal are due, and ``entries`` what its lookups have returned. ``carried`` is
    what it continues with. The code of the orchestration runs inside ``watch``, even when it is dropped."""

    def __init__(
        self,
        orchestration: Orchestration,
        instance_id: uuid.UUID,
        carried: Continuation | None = None,
        watch: Watch = nullcontext,
    ) -> None:
        self.orchestration = orchestration
        self.instance_id = instance_id
        self.carried = carried or _NOTHING_CARRIED
        self.watch = watch
        install_hooks()
        self._seed: uuid.UUID | None = None
        #: The steps that are to be run, by number.
        self.steps: dict[int, RunStep] = {}
        self.unroutable: dict[int, str] = {}
        self.due_times: dict[int, datetime] = {}
        self.entries: dict[int, Message | None] = {}
        #: True while it repeats a journal, which has the entries of all lookups.
        self.is_replaying = False
        #: Why a lookup could not be read. The turn is not stored, whatever the orchestration has made of it.
        self.lookup_error: Exception | None = None
        #: The reason why the instance has terminated itself.
        self.termination: str | None = None
        #: What the instance continues with, if it starts a fresh journal.
        self.continuation: Continuation | None = None
        #: The number of events of the journal, and the approximate number of its characters.
        self.journal_events = 0
        self.journal_size = 0
        self._brought_size = measure_value(self.carried.state)
        self._loop: InstanceLoop | None = None
        self._main: asyncio.Task[None] | None = None
        #: True if the coroutine has ended, and its other tasks, too.
        self._is_complete = False
        self._commands: list[Command] = []
        self._last_number = 0
        self._last_id = 0
        self._filters: dict[int, Filter] = {}
        if orchestration.activate is not None:
            self._filters[CONVOY] = orchestration.activate
        self._receives: dict[int, deque[_Receive]] = {}
        #: Messages that the instance has, and that the next receive takes.
        self._returned: dict[int, list[Message]] = {}
        #: What the engine has promoted on the messages that the instance has received.
        self._engine_values: set[tuple[str, Value]] = set()
        #: The requests that it has not answered.
        self.requests = OpenRequests()
        #: The message that started it, and its context.
        self.first_message: uuid.UUID | None = None
        self._activated_by = Context()
        self._step_futures: dict[int, asyncio.Future[object]] = {}
        self._suspensions: list[tuple[Suspend, asyncio.Future[None]]] = []

    # -- driving -----------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> tuple[Command, ...]:
        """Handle one event until every task waits. Return the commands that the instance issued.

        Raise JournalMismatch if the instance does not wait for this event."""
        with self.watch():
            return self._handle(event)

    def _handle(self, event: Event) -> tuple[Command, ...]:
        self._commands = []
        if self._loop is not None:
            self._loop.now = max(self._loop.now, event.time)
        self._apply(event)
        loop, main = self._loop, self._main
        assert loop is not None
        assert main is not None
        loop.run_until_waiting()
        if self.orchestration.activations and not self.orchestration.convoy and not self._is_dropped:
            self._refuse_endless_receives(loop)
        if main.done() and not self._is_dropped:
            self._is_complete = _has_raised(main) or loop.end()
        self.journal_events += 1
        self.journal_size += measure_turn(event, self._commands)
        self._brought_size += measure_message(event)
        commands, self._commands = self._commands, []  # a waiting instance does not hold the messages that it has sent
        return tuple(commands)

    def _apply(self, event: Event) -> None:
        if isinstance(event, Started | MessageReceived):
            promoted = event.message.context.promoted
            self._engine_values.update((key, promoted[key]) for key in ENGINE_PROPERTIES.intersection(promoted))
            self.requests.add(event.message)
        match event:
            case Started() if self._loop is None:
                self._seed = event.seed
                self.first_message, self._activated_by = event.message.message_id, event.message.context
                self._loop = InstanceLoop(event.time, owner=self)  # type: ignore[abstract]
                self._main = self._loop.create_task(self.orchestration.run(event.message))
                if self.orchestration.activations and not self.carried.journal:
                    self._returned[CONVOY] = [event.message]
                return
            case MessageReceived() if receive := self._find_waiting(event.correlation, event.message):
                receive.future.set_result(event.message)
                return
            case TimerFired() if self._loop is not None and self._loop.fire(event.number):
                return
            case StepEnded() if (future := self._step_futures.pop(event.number, None)) is not None:
                step = self.steps.pop(event.number)
                if event.error is None:
                    future.set_result(deepcopy(event.value))  # the orchestration may change it
                elif event.failure is not None:
                    future.set_exception(to_failure(event.failure))
                else:
                    future.set_exception(StepFailed(f"The step {step.name} has failed.", why=event.error))
                return
            case Resumed() if self.suspension is not None:
                for _, resumed in self._suspensions:
                    if not resumed.done():
                        resumed.set_result(None)
                self._suspensions.clear()
                return
        raise JournalMismatch(f"The instance does not wait for the event {type(event).__name__} of its journal.")

    def list_unanswered(self) -> list[uuid.UUID]:
        """Return the ids of the requests that the instance has given up, because it has ended or starts a fresh
        journal. A fresh journal starts with the first message again."""
        requests = self.requests.list_open(with_optional=self.termination is not None)
        return [one for one in requests if self.continuation is None or one != self.first_message]

    @property
    def has_started(self) -> bool:
        return self._main is not None

    @property
    def has_ended(self) -> bool:
        return self._is_dropped or self._is_complete

    @property
    def _is_dropped(self) -> bool:
        """True if the coroutine does not continue, although it has not ended."""
        return self.termination is not None or self.continuation is not None

    @property
    def suspension(self) -> Suspend | None:
        """The command with which the instance has suspended itself, until it is resumed."""
        for command, future in self._suspensions:
            if not future.done():
                return command
        return None

    @property
    def held_size(self) -> int:
        """The approximate number of bytes that a replay would bring into memory."""
        return self.journal_size + self._brought_size

    @property
    def error(self) -> BaseException | None:
        """The exception that ended the instance, if any."""
        if self._is_dropped:
            return None
        loop, main = self._loop, self._main
        if loop is None or main is None:
            return None
        if loop.errors:
            return loop.errors[0]
        raised = None
        if main.done():
            raised = asyncio.CancelledError() if main.cancelled() else main.exception()
        return raised or next(iter(loop.unawaited), None)

    def format_error(self) -> str:
        """Return the traceback of ``error``, from the first line of the orchestration on, and what was compensated."""
        error = self.error
        assert error is not None
        return format_traceback(error) + describe_compensations(error, self.journal_events - 1)

    def find_receive(self, message: Message) -> int | None:
        """Return the number of the correlation set whose receive waits for the message."""
        for number in sorted(self._receives, reverse=True):
            if self._find_waiting(number, message) is not None and _is_taken(self._filters[number], message):
                return number
        return None

    def describe_activation(self, message: Message) -> str | None:
        """Return which of several activating receives takes the message that starts the instance."""
        found = self.orchestration.find_activation(message)
        return None if found is None else format_filter(found)

    def list_timers(self) -> list[tuple[datetime, int]]:
        """Return when each open timer is due, with its number, the next one first."""
        return [] if self._loop is None else self._loop.list_timers()

    def list_waits(self) -> list[str]:
        """Return what the instance waits for, one text each."""
        names = {n: Correlate(number=n, place="", filter=self._filters[n]).name for n in self._receives}
        receives = [
            f"receive {names[n]}" if only is None else f"receive {names[n]} with {format_filter(only)}"
            for n in self._receives
            for only in dict.fromkeys(receive.only for receive in self._list_waiting(n))
        ]
        steps = [f"step {step.name}" for step in self.steps.values()]
        return [*receives, *steps, *(f"timer at {due.isoformat()}" for due, _ in self.list_timers())]

    def close(self) -> None:
        """Drop the coroutine. The instance continues from its journal."""
        if self._loop is not None:
            with self.watch():
                self._loop.close()
            # Without the cycle it is freed at once, not by the garbage collector.
            self._loop.owner = None

    # -- called by the orchestration ---------------------------------------------------------------------------

    @cached_property
    def random(self) -> random.Random:
        return random.Random(self._derive_id("random").int)

    @property
    def now(self) -> datetime:
        assert self._loop is not None
        return self._loop.now

    @property
    def loop(self) -> InstanceLoop:
        assert self._loop is not None
        return self._loop

    def make_id(self) -> uuid.UUID:
        self._last_id += 1
        return self._derive_id(f"id {self._last_id}")

    def _derive_id(self, name: str) -> uuid.UUID:
        assert self._seed is not None
        return uuid.uuid5(self._seed, name)

    def check_promoted(self, message: Message) -> None:
        """Raise BadValue if a message promotes what only the engine promotes (PUB-13). A received message can be sent
        on as it is."""
        own = [key for key, value in message.context.promoted.items() if (key, value) not in self._engine_values]
        if (what := describe_engine_properties(own)) is not None:
            raise BadValue(what, hint=ENGINE_PROPERTY_HINT)

    def make_send(
        self, message: Message, port: str | None, direct_port: str | None = None, *, call: str = "send"
    ) -> Send:
        number = self._next_number()
        context = add_hop(message.context, self.orchestration.name, cause=self._activated_by)
        message = _with_derived_ids(message, context, self._derive_id(f"send {number}"))
        place = self.loop.find_place()
        return Send(number=number, place=place, message=message, port=port, direct_port=direct_port, call=call)

    def make_start(self, message: Message, orchestration: Orchestration) -> Start:
        send = self.make_send(message, None)
        return Start(
            number=send.number,
            place=send.place,
            message=send.message,
            port=None,
            orchestration=orchestration.name,
            old_name=orchestration.renamed_from,
        )

    def issue_sends(self, sends: Sequence[Send]) -> None:
        """Issue sends, all or none.

        When a turn is run a second time, it is known which sends have no subscriber (``unroutable``). Then raise
        RoutingFailure at the first of them, and issue no other. A send of an atomic function fails at the end of the
        function."""
        for send in sends:
            if (reason := self.unroutable.get(send.number)) is not None:
                self.issue(replace(send, unroutable=reason))
                raise RoutingFailure(reason)
        for send in sends:
            self.issue(send)
            self.requests.settle(send)

    def issue(self, command: Command) -> None:
        self._commands.append(command)

    def look_up(self, lookup: str, digest: str, read: Callable[[], Message | None]) -> Message | None:
        """Return the entry of a lookup, as the journal has it, or as ``read`` returns it."""
        number = self._next_number()
        place = self.loop.find_place()
        if number in self.entries or self.is_replaying:
            # A lookup that the journal does not have is a difference that the replay reports.
            entry = self.entries.pop(number, None)
        else:
            try:
                entry = read()
            except Exception as error:
                self.lookup_error = error
                raise
        self.issue(LookUp(number=number, place=place, lookup=lookup, digest=digest, entry=entry))
        return entry

    def correlate(self, filter: Filter, *, acknowledged_by: str | None = None) -> int:
        number = self._next_number()
        place = self.loop.find_place()
        self.issue(Correlate(number=number, place=place, filter=filter, acknowledged_by=acknowledged_by))
        self._filters[number] = filter
        return number

    async def receive_once(self, filter: Filter, *, acknowledged_by: str | None = None) -> Message:
        """Wait for one message that matches a filter, whose first value nobody else waits for."""
        correlation = self.correlate(filter, acknowledged_by=acknowledged_by)
        try:
            return await self.receive(correlation)
        finally:
            for known in (self._receives, self._returned, self._filters):
                known.pop(correlation, None)
            number = self._next_number()
            place = self.loop.find_place()
            self.issue(Forget(number=number, place=place, filter=filter, acknowledged_by=acknowledged_by))

    async def receive(self, correlation: int, only: Filter | None = None) -> Message:
        returned = self._returned.setdefault(correlation, [])
        for number, message in enumerate(returned):
            if _is_taken(only, message):
                return returned.pop(number)
        future: asyncio.Future[Message] = self.loop.create_future()
        self._receives.setdefault(correlation, deque()).append(_Receive(future=future, only=only))
        try:
            return await future
        except asyncio.CancelledError:
            # Another task cancelled this one after the message came. The next receive gets it.
            if future.done() and not future.cancelled() and future.exception() is None:
                returned.append(future.result())
            raise

    @property
    def can_receive(self) -> bool:
        """True if there can be a message for a receive of the convoy: also the one that has activated the instance."""
        return bool(self.orchestration.convoy or self._returned.get(CONVOY))

    def _refuse_endless_receives(self, loop: InstanceLoop) -> None:
        """Raise in receives of an instance without a convoy. It has only the message that has activated it, and they do
        not take that one."""
        while waiting := self._list_waiting(CONVOY):
            for receive in waiting:
                receive.future.set_exception(
                    StateError(
                        f"The orchestration {self.orchestration.name!r} would wait for ever in receive().",
                        why="It is no convoy, so it receives only the message that has activated it, and this receive "
                        "does not take that message.",
                        hint="Declare it with convoy=[...], so that other messages join the instance. To wait for the "
                        "message that comes, use: await listen(receive(...), receive(...)).",
                    )
                )
            loop.run_until_waiting()

    async def run_step(
        self,
        name: str,
        call: Callable[[uuid.UUID], object],
        timeout: float | None,
        *,
        digest: str | None = None,
        is_secret: bool = False,
        is_pure: bool = False,
    ) -> Any:
        number = self._next_number()
        key = self._derive_id(f"step {number}")
        step = RunStep(
            number=number,
            place=self.loop.find_place(),
            step_name=name,
            call=lambda: call(key),
            timeout=timeout,
            digest=digest,
            is_secret=is_secret,
            is_pure=is_pure,
        )
        self.issue(step)
        self.steps[number] = step
        future: asyncio.Future[object] = self.loop.create_future()
        self._step_futures[number] = future
        try:
            return await future
        except asyncio.CancelledError:
            # If it has no result, it has not begun: no event is handled while a step runs.
            if self.steps.pop(number, None) is not None:
                del self._step_futures[number]
                self.issue(CancelStep(number=self._next_number(), place=self.loop.find_place(), step=step))
            raise

    async def suspend(self, reason: str) -> None:
        command = Suspend(number=self._next_number(), place=self.loop.find_place(), reason=reason)
        self.issue(command)
        future: asyncio.Future[None] = self.loop.create_future()
        self._suspensions.append((command, future))
        await future

    async def terminate(self, reason: str) -> NoReturn:
        self.termination = reason
        await self._drop()

    async def continue_with(self, state: object) -> NoReturn:
        if any(self._returned.values()):
            raise StateError(
                "The instance has a message that no receive has taken, and continue_with() would lose it.",
                hint="Receive it first. The message that activates an instance is received with receive(), too.",
            )
        self.continuation = Continuation(journal=self.carried.journal + 1, state=state)
        await self._drop()

    async def _drop(self) -> NoReturn:
        """Stop all tasks of the instance. ``close`` drops them: no handler, compensation or ``finally`` block does
        anything more as this instance."""
        self.loop.discard_callbacks()
        await self.loop.create_future()
        raise AssertionError("a dropped coroutine continued")

    def start_timer(self, due: datetime) -> tuple[int, datetime]:
        """Return the number of a new timer, and when it is due. A timer of the journal keeps its time, even if the code
        has another time limit now."""
        number = self._next_number()
        due = self.due_times.pop(number, due)
        self.issue(StartTimer(number=number, place=self.loop.find_place(), due=due))
        return number, due

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    def _list_waiting(self, correlation: int) -> deque[_Receive]:
        """Return the receives that wait, in order. Remove those that were cancelled or have their message."""
        waiting = self._receives.get(correlation)
        if waiting is None:
            return deque()
        while waiting and waiting[0].future.done():
            waiting.popleft()
        self._receives[correlation] = waiting = deque(receive for receive in waiting if not receive.future.done())
        return waiting

    def _find_waiting(self, correlation: int, message: Message) -> _Receive | None:
        """Return the first receive that waits and takes the message."""
        return next((receive for receive in self._list_waiting(correlation) if receive.takes(message)), None)


def _is_taken(only: Filter | None, message: Message) -> bool:
    return only is None or matches(only, message.context.promoted)


def _has_raised(task: asyncio.Task[None]) -> bool:
    return task.cancelled() or task.exception() is not None


def operation(function: Callable[_P, Coroutine[Any, Any, _T]]) -> Callable[_P, Coroutine[Any, Any, _T]]:
    """Declare a coroutine function that an orchestration has to await, because something is missing otherwise."""

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> Coroutine[Any, Any, _T]:
        coroutine = function(*args, **kwargs)
        loop = asyncio._get_running_loop()
        if isinstance(loop, InstanceLoop):
            loop.add_operation(cast("CoroutineType[Any, Any, Any]", coroutine))
        return coroutine

    return call


def find_execution() -> Execution | None:
    """Return the instance that runs now, or None outside of an orchestration."""
    loop = asyncio._get_running_loop()
    if not isinstance(loop, InstanceLoop):
        return None
    owner: Execution = loop.owner
    return owner


def get_execution() -> Execution:
    """Return the instance that runs now. Raise StateError outside of an orchestration."""
    execution = find_execution()
    if execution is None:
        raise StateError(
            "This function works only inside an orchestration.",
            hint="Call it in a function that is declared with @app.orchestration(...), or that such a function awaits.",
        )
    return execution


def _with_derived_ids(message: Message, context: Context, message_id: uuid.UUID) -> Message:
    # Not by ``replace``, which takes longer than the rest: it runs for every send.
    parts = [
        Part(
            name=part.name,
            body=part.body,
            content_type=part.content_type,
            charset=part.charset,
            part_id=uuid.uuid5(message_id, part.name),
        )
        for part in message.parts
    ]
    return Message(context=context, parts=tuple(parts), body_part_name=message.body_part_name, message_id=message_id)
