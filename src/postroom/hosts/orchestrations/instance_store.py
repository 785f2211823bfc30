"""The store of an orchestration instance in the MessageBox. Each persistence point is one transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from postroom.agent.addressing import Addressees
from postroom.agent.direct.message_agent import MessageAgent, Outbox
from postroom.clock import Clock
from postroom.errors import PublishFailed, RoutingFailure
from postroom.message import Message
from postroom.messagebox.connection import Connection
from postroom.messagebox.orchestrations import ClaimedInstance, DeployedOrchestration, HostOrchestrations
from postroom.messagebox.queues import ClaimedMessage
from postroom.messagebox.storage.stored_messages import ClaimReader, build_message
from postroom.messagebox.subscriptions import ServiceSubscriptions, SubscribingService
from postroom.orchestrations.driver import PersistencePoint
from postroom.orchestrations.execution import Execution
from postroom.orchestrations.journal import Correlate, Event, MessageReceived, Send, Started, Turn
from postroom.orchestrations.recorded_values import to_recorded


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
        if self._addressees is None or port not in self._addressees:
            self._addressees = Addressees.read(self.connection)
        return replace(message, context=self._addressees.direct(port, message.context))

    def forget_ports(self) -> None:
        """Read the send ports again with the next send."""
        self._addressees = None


class MessageBoxStore:
    """One claimed instance. ``messages`` are those that it has not received, in order."""

    def __init__(
        self,
        thread: InstanceConnection,
        claimed: ClaimedInstance,
        orchestration: DeployedOrchestration,
        messages: Sequence[ClaimedMessage],
    ) -> None:
        self._thread = thread
        self._claimed = claimed
        self._service = SubscribingService(service_id=orchestration.service_id, name=orchestration.name)
        self._messages = {message.seq: build_message(message, thread.reader) for message in messages}
        self.journal_length = claimed.journal_length
        self.has_ended = False
        #: The number of messages that were left when the instance ended.
        self.unconsumed = 0

    def get_time(self) -> datetime:
        return self._thread.clock()

    def find_message(self, execution: Execution, taken: Collection[int]) -> Event | None:
        for seq, message in self._messages.items():
            if seq in taken:
                continue
            if not execution.has_started:
                return Started(time=self.get_time(), message=message, seq=seq)
            if (number := execution.find_receive(message)) is not None:
                return MessageReceived(time=self.get_time(), correlation=number, message=message, seq=seq)
        return None

    def persist(self, point: PersistencePoint) -> Mapping[int, str]:
        sends = [command for command in point.commands if isinstance(command, Send) and command.unroutable is None]
        messages = {send.number: self._direct(send) for send in sends}

        def work(connection: Connection, outbox: Outbox) -> None:
            self._write(connection, point)
            outbox.publish(*messages.values())

        try:
            self._thread.agent.transaction(work)
        except PublishFailed as error:
            return _find_unroutable(error, messages)
        self.journal_length += 1 if point.turns else 0
        self.has_ended = point.has_ended
        for seq in point.consumed:
            del self._messages[seq]
        if point.continuation is not None:
            self._restore_first_message()
        return {}

    def read_journal(self) -> Iterable[Turn]:
        thread = self._thread
        rows = thread.procedures.read_messages(thread.connection, self._claimed.claim_id, self._claimed.instance_id)
        messages = {row.message_id: build_message(row, thread.reader) for row in rows}
        return [
            Turn.from_json(stored, messages)
            for stored in thread.procedures.read_journal(thread.connection, self._claimed)
        ]

    def _restore_first_message(self) -> None:
        """Read the messages again: the first one starts the instance again."""
        thread = self._thread
        rows = thread.procedures.read_messages(thread.connection, self._claimed.claim_id, self._claimed.instance_id)
        self._messages = {row.seq: build_message(row, thread.reader) for row in rows}

    def _direct(self, send: Send) -> Message:
        return send.message if send.port is None else self._thread.direct(send.message, send.port)

    def _write(self, connection: Connection, point: PersistencePoint) -> None:
        procedures = self._thread.procedures
        if point.has_ended:
            self.unconsumed = procedures.end(
                connection, self._claimed, journal_length=self.journal_length, consumed=point.consumed
            )
            return
        if point.continuation is not None:
            procedures.restart(
                connection,
                self._claimed,
                journal_length=self.journal_length,
                consumed=point.consumed,
                carried=to_recorded(point.continuation.state),
            )
            return
        procedures.persist(
            connection,
            self._claimed,
            journal_length=self.journal_length,
            turns=[turn.to_json() for turn in point.turns],
            consumed=point.consumed,
            wake_at=point.wake_at,
            release=point.is_waiting and point.suspension is None,
        )
        for command in point.commands:
            if isinstance(command, Correlate):
                self._thread.subscriptions.wait(connection, self._service, self._claimed.instance_id, command.filter)
        if point.suspension is not None:
            procedures.suspend(connection, self._claimed, code="SUSPENDED_ITSELF", description=point.suspension)


def _find_unroutable(error: PublishFailed, messages: Mapping[int, Message]) -> Mapping[int, str]:
    """Return the sends without subscribers. Raise the error if there is any other failure."""
    failures = {result.message_id: result.failure for result in error.results if result.failure is not None}
    if not all(isinstance(failure, RoutingFailure) for failure in failures.values()):
        raise error
    return {
        number: failures[message.message_id].what
        for number, message in messages.items()
        if message.message_id in failures
    }
