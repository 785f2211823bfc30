"""What a worker needs to drive and store instances: a connection, the agent on it, and the send ports that it knows."""

from __future__ import annotations

from postroom.agent.addressing import Addressees
from postroom.agent.direct.direct_agent import DirectAgent
from postroom.agent.routing.table import RoutingTable
from postroom.clock import Clock
from postroom.filters.expression import Filter
from postroom.hosts.dequeue.processing import ThreadConnections
from postroom.message import Message
from postroom.messagebox.configuration.hosts import Host, ServiceClass
from postroom.messagebox.connection import Connect, Connection
from postroom.messagebox.orchestrations import HostOrchestrations
from postroom.messagebox.queues import HostQueues
from postroom.messagebox.subscriptions import ServiceSubscriptions
from postroom.orchestrations.journal import Correlate
from postroom.system_properties import BTS


class WorkerSession:
    """The session of one worker. It has a connection and an agent after ``open``."""

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
        self._addressees: Addressees | None = None
        self._connected: Connection | None = None

    def open(self) -> None:
        """Connect, or connect again after the connection was lost. Raise Unavailable if the MessageBox is
        unavailable."""
        connection = self.reader.get_writing()
        if self._connected is not connection:
            self.connection = self._connected = connection
            self.agent = DirectAgent(connection, self._host, self._routing, is_engine=True)
            self._addressees = None

    def close(self) -> None:
        self.reader.close()

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
