"""What a worker needs to drive and store instances: a connection, the agent on it, and the send ports that it knows."""

from __future__ import annotations

from postroom.agent.addressing import Addressees
from postroom.agent.direct.message_agent import MessageAgent
from postroom.agent.routing.table import RoutingTable
from postroom.clock import Clock
from postroom.filters.expression import Filter
from postroom.hosts.dequeue.service import ThreadConnections
from postroom.message import Message
from postroom.messagebox.configuration.hosts import Host, ServiceClass
from postroom.messagebox.connection import Connect, Connection
from postroom.messagebox.orchestrations import HostOrchestrations
from postroom.messagebox.queues import HostQueues
from postroom.messagebox.storage.stored_messages import ClaimReader
from postroom.messagebox.subscriptions import ServiceSubscriptions
from postroom.orchestrations.journal import Correlate
from postroom.system_properties import BTS


class WorkerSession:
    """A connection of one worker, with the agent on it and the send ports that it has read."""

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


class WorkerSessions:
    """Opens the session of one worker, and opens it again after its connection was lost."""

    def __init__(
        self, connect: Connect, host: Host, routing: RoutingTable, procedures: HostOrchestrations, clock: Clock
    ) -> None:
        self._host = host
        self._procedures = procedures
        self._clock = clock
        self._connections = ThreadConnections(connect, HostQueues(host.name))
        self._routing = routing
        self._session: WorkerSession | None = None

    def get(self) -> WorkerSession:
        """Return the session. Raise Unavailable if the MessageBox is unavailable."""
        connection = self._connections.get_writing()
        if self._session is None or self._session.connection is not connection:
            self._session = WorkerSession(
                connection,
                MessageAgent(connection, self._host, self._routing, is_engine=True),
                procedures=self._procedures,
                subscriptions=ServiceSubscriptions(self._host, ServiceClass.ORCHESTRATIONS),
                reader=self._connections,
                clock=self._clock,
            )
        return self._session

    def close(self) -> None:
        self._connections.close()
