"""Solicit-response send ports: sends a request, and publishes the response as it completes the request (RR-10)."""

from __future__ import annotations

import uuid

from postroom.adapters import Attempt, SendAdapter
from postroom.adapters.contract import SolicitAdapter
from postroom.agent.receiving.interchange import Interchange
from postroom.agent.routing.table import RoutingTable
from postroom.agent.two_way.responses import ResponsePublisher
from postroom.errors import PipelineFailure
from postroom.hosts.dequeue.service import Disposition, Outcome, ThreadConnections
from postroom.hosts.messaging.failures import describe_sent
from postroom.hosts.messaging.sent_messages import retry_while_unavailable
from postroom.message import Message
from postroom.messagebox.configuration.hosts import Host
from postroom.messagebox.coordination.notifications import OwnHost
from postroom.messagebox.queues import ClaimedMessage, HostQueues
from postroom.ports.send_ports import SendPort


class Solicits:
    """Sends the messages of two-way send ports."""

    def __init__(self, host: Host, queues: HostQueues, routing: RoutingTable, own_host: OwnHost | None = None) -> None:
        self._responses = ResponsePublisher(host, routing, own_host)
        self._queues = queues

    def send(
        self,
        port: SendPort,
        claimed: ClaimedMessage,
        adapter: SendAdapter,
        outgoing: Message | None,
        attempt: Attempt,
        connections: ThreadConnections,
    ) -> Outcome:
        """Send ``outgoing``, which is the claimed message after the send pipeline. Raise its failure, or ClaimLost."""
        if outgoing is None:
            raise PipelineFailure(
                "The send pipeline consumed the request.", why="A two-way send port needs something to send."
            )
        assert isinstance(adapter, SolicitAdapter), f"{port.adapter_kind} cannot return a response"
        sent = describe_sent(port, claimed)
        assert sent is not None, "a message without context cannot be built"
        received = adapter.solicit(outgoing, attempt)
        response = Interchange(interchange_id=uuid.uuid4(), body=received.body, context=received.context)
        completion = self._queues.build_completion(claimed)
        retry_while_unavailable(
            lambda: self._responses.publish(connections.get_writing(), port, sent, response, completion)
        )
        return Disposition.FINISHED
