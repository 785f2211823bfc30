"""What a claimed instance reads from the MessageBox: its messages and its journal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from postroom.agent.addressing import Addressees
from postroom.agent.direct.message_agent import MessageAgent
from postroom.clock import Clock
from postroom.filters.expression import Filter
from postroom.message import Message
from postroom.messagebox.connection import Connection
from postroom.messagebox.orchestrations import (
    MESSAGES_AT_A_TIME,
    ClaimedInstance,
    DeployedOrchestration,
    HostOrchestrations,
)
from postroom.messagebox.queues import ClaimedMessage
from postroom.messagebox.storage.stored_messages import ClaimReader, build_message
from postroom.messagebox.subscriptions import ServiceSubscriptions
from postroom.orchestrations.driver import PersistencePoint
from postroom.orchestrations.execution import Execution
from postroom.orchestrations.journal import Correlate, Event, MessageReceived, Started, Turn
from postroom.system_properties import BTS


class InstanceConnection:
    """What a thread works with: a connection, the agent on it, and the send ports that it knows."""

    def __init__(
        self,
        connection: Connection,
        agent: MessageAgent,
        *,
        procedures: HostOrchestrations,
        subscriptions: ServiceSubscriptions,
        reader: ClaimReader,
        clock: Clock,
    ) -> None:
        self.connection = connection
        self.agent = agent
        self.procedures = procedures
        self.subscriptions = subscriptions
        self.reader = reader
        self.clock = clock
        self._addressees: Addressees | None = None

    def direct(self, message: Message, port: str) -> Message:
        """Return the message directed to a port. Raise NotFound if there is no such port."""
        context = self._get_addressees(port).direct(port, message.context)
        return Message(
            context=context,
            parts=message.parts,
            body_part_name=message.body_part_name,
            message_id=message.message_id,
        )

    def _get_addressees(self, port: str) -> Addressees:
        if self._addressees is None or port not in self._addressees:
            self._addressees = Addressees.read(self.connection)
        return self._addressees

    def forget_ports(self) -> None:
        """Read the send ports again with the next send."""
        self._addressees = None

    def build_filter(self, command: Correlate) -> Filter:
        """Return the filter of a correlation set. A message that is directed to a port has other subscribers too, whose
        acknowledgements do not count."""
        if command.acknowledged_by is None:
            return command.filter
        port_id = self._get_addressees(command.acknowledged_by).find_acknowledging_port(command.acknowledged_by)
        return command.filter if port_id is None else command.filter & (BTS.AckSendPortID == str(port_id))


class MessageBoxStore:
    """One claimed instance. ``messages`` are the first that it has not received, in order. At most a few hundred are in
    memory. ``thread`` is the connection that reads, and may change between two events."""

    def __init__(
        self,
        thread: InstanceConnection,
        claimed: ClaimedInstance,
        orchestration: DeployedOrchestration,
        messages: Sequence[ClaimedMessage],
    ) -> None:
        self.thread = thread
        self.orchestration = orchestration
        self.journal_length = claimed.journal_length
        self._claimed = claimed
        self._messages: dict[int, Message] = {}
        self._add(messages)
        #: True if messages that no receive waited for were dropped from memory.
        self._has_dropped = False

    def get_time(self) -> datetime:
        return self.thread.clock()

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
            thread = self.thread
            self._add(thread.procedures.read_more_messages(thread.connection, self._claimed, after=self._last_seq))

    def read_journal(self) -> Iterable[Turn]:
        thread = self.thread
        rows = thread.procedures.read_received_messages(thread.connection, self._claimed)
        messages = {row.message_id: build_message(row, thread.reader) for row in rows}
        return [
            Turn.from_json(stored, messages)
            for stored in thread.procedures.read_journal(thread.connection, self._claimed)
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
            self._messages[message.seq] = build_message(message, self.thread.reader)
        self._has_more = len(messages) >= MESSAGES_AT_A_TIME
        self._last_seq = messages[-1].seq if messages else 0
