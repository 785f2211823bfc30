"""What a claimed instance reads from the MessageBox: its messages and its journal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from postroom.hosts.orchestrations.worker_session import WorkerSession
from postroom.message import Message
from postroom.messagebox.orchestrations import (
    MESSAGES_AT_A_TIME,
    ClaimedInstance,
    DeployedOrchestration,
)
from postroom.messagebox.queues import ClaimedMessage
from postroom.messagebox.storage.stored_messages import build_message
from postroom.orchestrations.driver import PersistencePoint
from postroom.orchestrations.execution import Execution
from postroom.orchestrations.journal import Event, MessageReceived, Started, Turn


class MessageBoxStore:
    """One claimed instance. ``messages`` are the first that it has not received, in order. At most a few hundred are in
    memory. ``session`` is that of the worker that drives it, and may change between two events."""

    def __init__(
        self,
        session: WorkerSession,
        claimed: ClaimedInstance,
        orchestration: DeployedOrchestration,
        messages: Sequence[ClaimedMessage],
    ) -> None:
        self.session = session
        self.orchestration = orchestration
        self.journal_length = claimed.journal_length
        self._claimed = claimed
        self._messages: dict[int, Message] = {}
        self._add(messages)
        #: True if messages that no receive waited for were dropped from memory.
        self._has_dropped = False

    def get_time(self) -> datetime:
        return self.session.clock()

    @property
    def timers_until(self) -> datetime | None:
        return self._claimed.timers_until

    def find_message(self, execution: Execution, taken: Collection[int]) -> Event | None:
        if self._has_dropped:
            self._rewind()
        while True:
            for seq, message in self._messages.items():
                if seq in taken:
                    continue
                if not execution.has_started:
                    return Started(time=self.get_time(), message=message, seq=seq)
                if (number := execution.find_receive(message)) is not None:
                    return MessageReceived(time=self.get_time(), correlation=number, message=message, seq=seq)
            if not self._has_more:
                return None
            if len(self._messages) > MESSAGES_AT_A_TIME:
                self._messages.clear()
                self._has_dropped = True
            session = self.session
            self._add(session.procedures.read_more_messages(session.connection, self._claimed, after=self._last_seq))

    def read_journal(self) -> Iterable[Turn]:
        session = self.session
        rows = session.procedures.read_received_messages(session.connection, self._claimed)
        messages = {row.message_id: build_message(row, session.reader) for row in rows}
        return [
            Turn.from_json(stored, messages)
            for stored in session.procedures.read_journal(session.connection, self._claimed)
        ]

    def move_past(self, point: PersistencePoint) -> None:
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
        for message in messages:
            self._messages[message.seq] = build_message(message, self.session.reader)
        self._has_more = len(messages) >= MESSAGES_AT_A_TIME
        self._last_seq = messages[-1].seq if messages else 0
