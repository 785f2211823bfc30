"""Solicit-response send ports: sends a request, and publishes the response as it completes the request (RR-10).

The response carries the token of its request, so that it is routed to the caller (RR-03, RR-04). The name of the port
is promoted, so that others can subscribe to its responses, too (CTX-22). If the request fails, or its response cannot
be processed, the caller gets a negative acknowledgement (RR-11).
"""

from __future__ import annotations

import uuid
from functools import partial

from postroom.adapters import Attempt, SendAdapter
from postroom.adapters.contract import SolicitAdapter
from postroom.agent.acknowledgements import SentMessage, is_ack_required, is_waiting
from postroom.agent.direct.direct_batch import DirectBatch, Endpoint, Publication
from postroom.agent.publish import Publisher
from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.interchange import Interchange
from postroom.agent.streaming.single_document import build_received, read_document
from postroom.correlation_tokens import copy_token
from postroom.errors import MessageFailure, PipelineFailure
from postroom.hosts.dequeue.service import Disposition, Outcome, ThreadConnections
from postroom.hosts.messaging.failures import describe_sent
from postroom.hosts.messaging.sent_messages import retry_while_unavailable
from postroom.message import Context, Message
from postroom.messagebox.configuration.hosts import Host
from postroom.messagebox.connection import Connection
from postroom.messagebox.coordination.notifications import OwnHost
from postroom.messagebox.queues import ClaimedMessage, HostQueues, Suspension
from postroom.ports.send_ports import SendPort
from postroom.system_properties import BTS


class SolicitResponse:
    """Sends the messages of two-way send ports. Many threads share it."""

    def __init__(self, host: Host, queues: HostQueues, routing: RoutingTable, own_host: OwnHost | None = None) -> None:
        self._host = host
        self._queues = queues
        self._routing = routing
        self._own_host = own_host

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
        publication = self._build_publication(port, claimed, sent, response)
        retry_while_unavailable(lambda: self._publish(connections.get_writing(), publication))
        return Disposition.FINISHED

    def _publish(self, connection: Connection, publication: Publication) -> None:
        publisher = Publisher(connection, self._routing, own_host=self._own_host)
        publisher.run(partial(DirectBatch, self._host, publication))

    def _build_publication(
        self, port: SendPort, claimed: ClaimedMessage, request: SentMessage, response: Interchange
    ) -> Publication:
        """Return the response, which is published as its request is completed. A response that cannot be processed is
        suspended, and the caller gets a negative acknowledgement."""
        failures: dict[int, MessageFailure] = {}
        try:
            document = read_document(port.receive_pipeline, port.response_maps, response)
            assert document is not None, "only authentication drops documents"
        except MessageFailure as failure:
            failures[0] = failure
            document = build_received(response, port.receive_pipeline.content_type)
        message = document.with_context(_build_context(port, request.context, document.context, response))
        messages = [message]
        if failures and request.has_caller:
            messages.append(request.build_nack(Suspension(code=failures[0].code, description=str(failures[0]))))
        elif not failures and is_ack_required(request.context):
            messages.append(request.build_ack())
        return Publication(
            messages=messages,
            failures=failures,
            answers=[message.message_id] if is_waiting(message.context) and not failures else [],
            precondition=self._queues.build_completion(claimed),
            endpoint=Endpoint(service_id=port.port_id, adapter=port.adapter_kind, uri=port.uri, resumable=True),
        )


def _build_context(port: SendPort, request: Context, document: Context, response: Interchange) -> Context:
    context = (
        document.promote(BTS.SPName, port.name)
        .promote(BTS.SPID, str(port.port_id))
        .promote(BTS.InboundTransportLocation, port.uri[:256])
        .promote(BTS.InboundTransportType, port.adapter_type.transport_type)
        .promote(BTS.SuspendMessageOnRoutingFailure, True)
        .write(BTS.IsSolicitResponse, True)
        .write(BTS.InterchangeID, request.get(BTS.InterchangeID, str(response.interchange_id)))
    )
    return copy_token(request, context)
