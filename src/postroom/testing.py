"""Test orchestrations without PostgreSQL and Spark: fake ports, and a clock that skips the waiting.

from postroom import testing

run = testing.start(procure, order)
run.publish(offer)                          # a message for the instance
run.advance(timedelta(minutes=5))           # timers that are due fire
assert [sent.port for sent in run.sent] == ["Acme", "Bolt"]
assert run.has_ended

with testing.lookups({"Customers": {"C-17": b'{"name": "Acme"}'}}):    # for orchestrations, components and maps
    ...
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from postroom.correlation_tokens import add_token, copy_token
from postroom.errors import DefinitionError, NotFound, StateError
from postroom.lookups.source import use_source
from postroom.message import Message
from postroom.orchestrations.correlation import CALLER, DirectPort
from postroom.orchestrations.definition import (
    Orchestration,
    describe_wrong_call,
    describe_wrong_direct_call,
    get_port_name,
)
from postroom.orchestrations.driver import Driver, Outcome, PersistencePoint, drive
from postroom.orchestrations.driver import replay as replay_turns
from postroom.orchestrations.execution import Execution
from postroom.orchestrations.failures import JournalFull, JournalMismatch, NotAwaited, UnstorableResult
from postroom.orchestrations.journal import Event, MessageReceived, Send, Started, Turn
from postroom.orchestrations.saved_journal import SavedJournal, read_journal
from postroom.system_properties import BTS

_FIRST_TIME = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A message that the orchestration has sent. ``port`` is the name of the send port or direct port, or of the
    orchestration that it started. None: it was published to all subscribers."""

    message: Message
    port: str | None


class Run:
    """One instance with its fake MessageBox and its clock. ``start`` creates it.

    ``error`` is the text with which a host would suspend the instance. Only mistakes in the code are raised:
    NotAwaited, and DefinitionError for a call that a send port of the application cannot do.

    With ``crashes`` the coroutine is dropped at each persistence point, and continues from its journal."""

    def __init__(
        self,
        orchestration: Orchestration,
        message: Message,
        *,
        subscribed: Collection[str | None] | None = None,
        crashes: bool = False,
        instance_id: uuid.UUID | None = None,
        time: datetime = _FIRST_TIME,
    ) -> None:
        self.sent: list[Sent] = []
        #: The journal, as the MessageBox stores it: one JSON value per turn.
        self.journal: list[dict[str, Any]] = []
        #: The error that suspended the instance.
        self.error: str | None = None
        self.has_ended = False
        #: The reason why the instance has suspended itself. ``resume`` continues it.
        self.suspension: str | None = None
        #: The reason why the instance has terminated itself.
        self.termination: str | None = None
        self.time = time
        self._subscribed = subscribed
        self._crashes = crashes
        self._messages: dict[int, Message] = {}
        self._known: dict[uuid.UUID, Message] = {}
        self._published = 0
        self._execution = Execution(orchestration, instance_id or uuid.uuid4())
        self.publish(message)

    def __del__(self) -> None:
        self._execution.close()

    def publish(self, message: Message, *, to: DirectPort | None = None) -> None:
        """Route a message to the instance, or a message that was sent to a direct port. It waits until a receive takes
        it."""
        if to is not None:
            message = to.address(message)
        self._published += 1
        self._messages[self._published] = message
        self._known[message.message_id] = message
        self._drive()

    def advance(self, time: timedelta) -> None:
        """Let time pass. The timers fire one after the other, each at its time."""
        end = self.time + time
        while self._is_running and (timers := self._execution.list_timers()) and timers[0][0] <= end:
            self.time = max(self.time, timers[0][0])
            self._drive()
        self.time = end

    def acknowledge(self, sent: Sent, *, failure: str | None = None) -> None:
        """Tell the instance that the send port has delivered a message, or that it has given up a message or a request
        because of a failure. A response is published: ``run.publish(response, to=reply_port(request))``."""
        promoted = {BTS.AckType: "ACK" if failure is None else "NACK", BTS.AckID: str(sent.message.message_id)}
        answer = Message.of(promoted=promoted, written={BTS.AckDescription: failure})
        request = sent.message.context
        if request.is_promoted(BTS.EpmRRCorrelationToken):
            if failure is None:
                raise StateError(
                    "The message is a request, which gets a response and no acknowledgement.",
                    hint="run.publish(response, to=orchestrations.reply_port(sent.message))",
                )
            answer = replace(answer, context=copy_token(request, answer.context))
        self.publish(answer)

    def resume(self) -> None:
        """Continue an instance that has suspended itself."""
        assert self.suspension is not None, "the instance has not suspended itself"
        self.suspension = None
        self._drive()

    def save_journal(self) -> SavedJournal:
        """Return the journal with everything that ``replay`` needs."""
        execution = self._execution
        return SavedJournal(
            orchestration=execution.orchestration.name,
            version=execution.orchestration.version,
            instance_id=execution.instance_id,
            carried=execution.carried,
            turns=list(self.journal),
            messages=list(self._known.values()),
        )

    @property
    def unreceived_messages(self) -> list[Message]:
        """The messages that were routed to the instance, and that it did not receive."""
        return list(self._messages.values())

    @property
    def waits(self) -> list[str]:
        """What the instance waits for."""
        return self._execution.list_waits() if self._is_running else []

    @property
    def _is_running(self) -> bool:
        return not self.has_ended and self.error is None and self.suspension is None

    def _drive(self) -> None:
        if not self._is_running:
            return
        driver = Driver(self._execution, self)
        try:
            drive(driver, self._persist)
        except (JournalFull, UnstorableResult) as error:
            self.error = str(error)
            return
        finally:
            self._execution = driver.execution
        self.termination = self._execution.termination
        if isinstance(self._execution.error, NotAwaited):
            raise self._execution.error
        if self._execution.error is not None:
            self.error = self._execution.format_error()
        elif self._crashes and not self.has_ended:
            dropped = self._execution
            dropped.close()
            self._execution = replay_turns(
                dropped.orchestration, dropped.instance_id, self.read_journal(), dropped.carried
            )

    # -- the store that the driver uses ------------------------------------------------------------------------

    def get_time(self) -> datetime:
        return self.time

    @property
    def timers_until(self) -> datetime:
        return self.time

    def find_message(self, execution: Execution, taken: Collection[int]) -> Event | None:
        for seq, message in self._messages.items():
            if seq in taken:
                continue
            if seq == 1:
                # Runs with the same instance_id have the same ids.
                seed = uuid.uuid5(execution.instance_id, f"journal {execution.carried.journal}")
                activation = execution.describe_activation(message)
                return Started(time=self.time, message=message, seed=seed, seq=seq, activation=activation)
            if (number := execution.find_receive(message)) is not None:
                return MessageReceived(time=self.time, correlation=number, message=message, seq=seq)
        return None

    def _persist(self, point: PersistencePoint) -> Outcome:
        sends = point.sends
        self._check_calls(sends)
        if self._subscribed is not None:
            unroutable = {
                one.number: "It has no subscriber."
                for one in sends
                if (one.name or None) not in self._subscribed and one.direct_port != CALLER
            }
            if unroutable:
                return unroutable
        for seq in point.consumed:
            del self._messages[seq]
        # Through JSON, as in the MessageBox.
        self.journal += json.loads(json.dumps([turn.to_json() for turn in point.turns]))
        self.sent += [Sent(message=send.message, port=send.name or None) for send in sends]
        self.has_ended = point.has_ended
        self.suspension = point.suspension
        if point.continuation is not None:
            self.journal.clear()
            self._messages = {1: next(iter(self._known.values())), **self._messages}
        return {}

    def _check_calls(self, sends: Sequence[Send]) -> None:
        """Raise DefinitionError with the text of ``plan`` if a send port of the application cannot do what is asked of
        it. Ports of other applications are not known here."""
        orchestration = self._execution.orchestration
        two_way = {port.name: port.two_way for port in orchestration.send_ports}
        for send in sends:
            if send.port is None:
                continue
            bound = orchestration.bindings.get(send.port, send.port)
            name = None if bound is None else get_port_name(bound)
            if name is None:
                text = describe_wrong_direct_call(send.port, send.call)
            else:
                text = describe_wrong_call(name, send.call, two_way=two_way[name]) if name in two_way else None
            if text is not None:
                raise DefinitionError(f"orchestration {orchestration.name!r}: {text}")

    def read_journal(self) -> Iterable[Turn]:
        return self.save_journal().read_turns()


@dataclass(frozen=True)
class _GivenEntries:
    """The entries that a test gives."""

    entries: Mapping[str, Mapping[Any, Message | bytes]]

    def get(self, name: str, key: object) -> Message | None:
        if name not in self.entries:
            raise NotFound(f"The test has no lookup {name!r}.", hint="Give its entries to testing.lookups(...).")
        entry = self.entries[name].get(key)
        return Message.of(entry) if isinstance(entry, bytes) else entry


def lookups(entries: Mapping[str, Mapping[Any, Message | bytes]]) -> AbstractContextManager[None]:
    """Let code that is tested read these lookups inside the context: entries by key, by the name of the lookup. An
    entry is a message, or only its body."""
    return use_source(_GivenEntries(entries))


def start(
    orchestration: Orchestration,
    message: Message,
    *,
    is_request: bool = False,
    subscribed: Collection[str | None] | None = None,
    crashes: bool = False,
) -> Run:
    """Start an instance with the message that activates it. With ``is_request`` a caller waits for the answer, which
    the orchestration sends to ``reply_port(message)``. Without ``subscribed`` all sends have a subscriber, otherwise
    only those through these ports; None in it stands for sends without a port."""
    if orchestration.activations and orchestration.find_activation(message) is None:
        raise StateError(
            f"The message does not activate the orchestration {orchestration.name!r}.",
            why="None of its activating receives takes it.",
            hint="Promote what they compare: Message.of(body, promoted={...}).",
        )
    if is_request:
        message = replace(message, context=add_token(message.context, str(uuid.uuid4())))
    return Run(orchestration, message, subscribed=subscribed, crashes=crashes)


def replay(orchestration: Orchestration, journal: SavedJournal | Path | str) -> None:
    """Replay a journal against the code: ``run.save_journal()``, or a file that ``postroom instance save-journal`` has
    written.

    Raise JournalMismatch, with the place, if the code does not fit."""
    if not isinstance(journal, SavedJournal):
        journal = read_journal(Path(journal))
    try:
        replay_turns(orchestration, journal.instance_id, journal.read_turns(), journal.carried).close()
    except JournalMismatch as error:
        if not journal.redacted:
            raise
        names = ", ".join(journal.redacted)
        raise JournalMismatch(
            error.what,
            why=f"{error.why} The values of {names} are redacted in this journal, so code that depends on them can "
            "differ, too.",
            hint=error.hint,
        ) from None
