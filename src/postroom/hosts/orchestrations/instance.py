"""A claimed instance of an orchestration in memory: its coroutine, its messages, and its next persistence point.

Coroutines stay in memory while their instances wait, so that a busy instance is not replayed for each message.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections import OrderedDict
from collections.abc import Collection, Generator, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from postroom.agent.direct.direct_agent import DirectAgent
from postroom.agent.routing.table import RoutingTable
from postroom.clock import Clock
from postroom.hosts.dequeue.processing import ThreadConnections
from postroom.hosts.orchestrations.bound_ports import BoundPorts
from postroom.hosts.orchestrations.turn_watch import TurnWatch
from postroom.message import Message
from postroom.messagebox.configuration.hosts import Host, ServiceClass
from postroom.messagebox.connection import Connect, Connection
from postroom.messagebox.orchestration_instances import MESSAGES_AT_A_TIME, ClaimedInstance, HostOrchestrations
from postroom.messagebox.orchestrations import DeployedOrchestration
from postroom.messagebox.queues import ClaimedMessage, HostQueues
from postroom.messagebox.storage.claimed_messages import build_message
from postroom.messagebox.subscriptions import ServiceSubscriptions
from postroom.orchestrations.definition import Orchestration
from postroom.orchestrations.driver import Driver, Outcome, PersistencePoint, replay
from postroom.orchestrations.execution import Execution
from postroom.orchestrations.journal import (
    Continuation,
    Event,
    MessageReceived,
    Started,
    Turn,
)
from postroom.orchestrations.recorded_values import from_recorded


class WorkerSession:
    """What a worker needs to drive and store instances: a connection and the agent on it, after ``open``, and the send
    ports with the bindings that it knows."""

    connection: Connection
    agent: DirectAgent

    def __init__(
        self, connect: Connect, host: Host, routing: RoutingTable, procedures: HostOrchestrations, clock: Clock
    ) -> None:
        self.procedures = procedures
        self.subscriptions = ServiceSubscriptions(host, ServiceClass.ORCHESTRATIONS)
        self.reader = ThreadConnections(connect, HostQueues(host.name))
        self.clock = clock
        self._host = host
        self._routing = routing
        self._ports: BoundPorts | None = None
        self._connected: Connection | None = None

    def open(self) -> None:
        """Connect, or connect again after the connection was lost. Raise Unavailable if the MessageBox is
        unavailable."""
        connection = self.reader.get_writing()
        if self._connected is not connection:
            self.connection = self._connected = connection
            self.agent = DirectAgent(connection, self._host, self._routing, is_engine=True)
            self._ports = None

    def close(self) -> None:
        self.reader.close()

    def get_ports(self) -> BoundPorts:
        """Return the send ports and what logical ports are bound to. Both change with the routing version."""
        version = self._routing.load(self.connection).version
        return self.read_ports() if self._ports is None or self._ports.version != version else self._ports

    def read_ports(self) -> BoundPorts:
        """Return the send ports and the bindings as they are now."""
        version = self._routing.load(self.connection).version
        self._ports = BoundPorts.read(self.connection, version)
        return self._ports


class ActiveInstance:
    """A claimed instance. ``messages`` are the first that it has not received, in order. At most a few hundred are in
    memory.

    A worker loads it, and advances it from one persistence point to the next. Another worker may advance it the next
    time, so each lends its session for the time of the call. Its driver reads messages and the journal from here
    (``InstanceStore``).
    """

    def __init__(self, claimed: ClaimedInstance, messages: Sequence[ClaimedMessage] = ()) -> None:
        self.claimed = claimed
        self.journal_length = claimed.journal_length
        #: The next persistence point, which is not stored yet, or None if there is nothing more to do.
        self.point: PersistencePoint | None = None
        #: True if a step is run next, which may take long.
        self.runs_step = False
        #: Since when the next persistence point waits to be stored, because publishing is throttled.
        self.delayed_since: float | None = None
        #: The number of messages that were claimed with the instance.
        self.message_count = len(messages)
        self._orchestration: DeployedOrchestration | None = None
        self._driver: Driver | None = None
        self._points: Generator[PersistencePoint, Outcome, None] | None = None
        self._outcome: Outcome | None = None
        # The session of the worker, while it loads or advances the instance.
        self._session: WorkerSession | None = None
        self._first_messages = messages
        self._messages: dict[int, Message] = {}
        self._last_seq, self._has_more = 0, False
        #: True if messages that no receive waited for were dropped from memory.
        self._has_dropped = False

    @property
    def is_loaded(self) -> bool:
        return self._driver is not None

    @property
    def execution(self) -> Execution:
        assert self._driver is not None
        return self._driver.execution

    @property
    def orchestration(self) -> DeployedOrchestration:
        assert self._orchestration is not None
        return self._orchestration

    def load(
        self,
        session: WorkerSession,
        deployed: DeployedOrchestration,
        code: Orchestration,
        live: LiveInstances,
        watch: TurnWatch,
    ) -> None:
        """Bring the coroutine into memory: the one that was kept, or a new one that repeats the journal. ``watch``
        watches its code. Raise JournalMismatch if the code does not fit the journal."""
        claimed = self.claimed
        watch_turn = partial(watch.watch, claimed)
        self._orchestration, self._session = deployed, session
        try:
            self._add(self._first_messages)
            self._first_messages = ()
            execution = live.take(claimed.instance_id, code, claimed.journal_length)
            if execution is None and claimed.journal_length:
                state = from_recorded(json.loads(claimed.carried or "null"))
                carried = Continuation(journal=claimed.journals, state=state)
                execution = replay(code, claimed.instance_id, self.read_journal(), carried, watch_turn)
            elif execution is None:
                execution = Execution(code, claimed.instance_id)
        finally:
            self._session = None
        execution.watch = watch_turn
        self._driver = Driver(execution, self)
        self._points = self._driver.run()

    def advance(self, session: WorkerSession) -> None:
        """Drive the loaded instance up to its next persistence point."""
        assert self._points is not None
        self._session = session
        try:
            self.point = next(self._points) if self._outcome is None else self._points.send(self._outcome)
        except StopIteration:
            self.point = None
        finally:
            self._session = None

    def keep_outcome(self, outcome: Outcome) -> None:
        """Keep the outcome of the persistence point for the next ``advance``."""
        assert self.point is not None
        self._outcome = outcome
        self.delayed_since = None
        self.runs_step = self.point.runs_step and not outcome
        if not outcome:
            self._move_past(self.point)

    def close(self) -> None:
        """Drop the coroutine, if it is loaded. The instance continues from its journal."""
        if self.is_loaded:
            self.unload().close()

    def unload(self) -> Execution:
        """Return the coroutine, and forget it. The instance and its driver refer to each other, so otherwise only the
        garbage collector would free them."""
        execution = self.execution
        if self._points is not None:
            self._points.close()
        self._driver = self._points = None
        return execution

    # -- called by the driver ----------------------------------------------------------------------------------

    def get_time(self) -> datetime:
        return self._get_session().clock()

    @property
    def timers_until(self) -> datetime | None:
        return self.claimed.timers_until

    def find_message(self, execution: Execution, taken: Collection[int]) -> Event | None:
        if self._has_dropped:
            self._rewind()
        while True:
            for seq, message in self._messages.items():
                if seq in taken:
                    continue
                if not execution.has_started:
                    activation = execution.describe_activation(message)
                    return Started(time=self.get_time(), message=message, seq=seq, activation=activation)
                if (number := execution.find_receive(message)) is not None:
                    return MessageReceived(time=self.get_time(), correlation=number, message=message, seq=seq)
            if not self._has_more:
                return None
            if len(self._messages) > MESSAGES_AT_A_TIME:
                self._messages.clear()
                self._has_dropped = True
            session = self._get_session()
            self._add(session.procedures.read_more_messages(session.connection, self.claimed, after=self._last_seq))

    def read_journal(self) -> Iterable[Turn]:
        session = self._get_session()
        rows = session.procedures.read_received_messages(session.connection, self.claimed)
        messages = {row.message_id: build_message(row, session.reader) for row in rows}
        turns = session.procedures.read_journal(session.connection, self.claimed)
        return [Turn.from_json(stored, messages) for stored in turns]

    def _get_session(self) -> WorkerSession:
        assert self._session is not None, "a worker loads or advances the instance"
        return self._session

    def _move_past(self, point: PersistencePoint) -> None:
        """Update the state in memory after a persistence point was stored."""
        self.journal_length += 1 if point.handled else 0
        for seq in point.consumed:
            self._messages.pop(seq, None)
        if point.continuation is not None:
            # The first message starts the instance again.
            self._rewind()

    def _rewind(self) -> None:
        """Read the messages from the first one on."""
        self._messages.clear()
        self._last_seq, self._has_more, self._has_dropped = 0, True, False

    def _add(self, messages: Sequence[ClaimedMessage]) -> None:
        reader = self._get_session().reader
        for message in messages:
            self._messages[message.seq] = build_message(message, reader)
        self._has_more = len(messages) >= MESSAGES_AT_A_TIME
        self._last_seq = messages[-1].seq if messages else 0


@dataclass(frozen=True, kw_only=True)
class _Entry:
    journal_length: int
    size: int
    execution: Execution


class LiveInstances:
    """At most ``limit`` executions that hold about ``max_size`` bytes together: the results of their steps, their
    messages and their states. The one that was used last is kept even if it is larger."""

    def __init__(self, limit: int, *, max_size: int) -> None:
        self._limit = limit
        self._max_size = max_size
        self._lock = threading.Lock()
        self._entries: OrderedDict[uuid.UUID, _Entry] = OrderedDict()
        #: The number of bytes that they hold, approximately.
        self.size = 0

    def take(self, instance_id: uuid.UUID, orchestration: Orchestration, journal_length: int) -> Execution | None:
        """Return the execution if it runs this code and its journal has this length. Another host may have continued
        it, or the code may have been applied again with changes."""
        with self._lock:
            entry = self._remove(instance_id) if instance_id in self._entries else None
        if entry is None:
            return None
        if entry.journal_length != journal_length or not orchestration.has_code_of(entry.execution.orchestration):
            entry.execution.close()
            return None
        return entry.execution

    def put(self, execution: Execution, journal_length: int) -> None:
        """Keep an execution. Those that were used longest ago are dropped if there are too many, or they are too
        large."""
        entry = _Entry(journal_length=journal_length, size=execution.held_size, execution=execution)
        dropped: list[_Entry] = []
        with self._lock:
            if execution.instance_id in self._entries:
                dropped.append(self._remove(execution.instance_id))
            self._entries[execution.instance_id] = entry
            self.size += entry.size
            while len(self._entries) > self._limit or (self.size > self._max_size and len(self._entries) > 1):
                dropped.append(self._remove(next(iter(self._entries))))
        for oldest in dropped:
            oldest.execution.close()

    def clear(self) -> None:
        with self._lock:
            entries = [self._remove(instance_id) for instance_id in list(self._entries)]
        for entry in entries:
            entry.execution.close()

    def __len__(self) -> int:
        return len(self._entries)

    def _remove(self, instance_id: uuid.UUID) -> _Entry:
        entry = self._entries.pop(instance_id)
        self.size -= entry.size
        return entry
