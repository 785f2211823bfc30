"""Publishes the responses of solicit-response send ports, in the transaction that completes the request (RR-10).

The response carries the token of its request, so that it is routed to the caller (RR-03, RR-04). The name of the port
is promoted, so that others can subscribe to its responses, too (CTX-22). If the request fails, or its response cannot
be processed, the caller gets a negative acknowledgement (RR-11).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

from postroom.agent.acknowledgements import SentMessage, is_ack_required, is_waiting
from postroom.agent.direct.answers import AnswerBatch
from postroom.agent.publish import Publisher
from postroom.agent.receiving.interchange import Interchange
from postroom.agent.routing.matching import Matcher
from postroom.agent.routing.table import RoutingTable
from postroom.agent.two_way.documents import build_received, read_document
from postroom.correlation_tokens import copy_token
from postroom.errors import BadValue, MessageFailure, RoutingFailure
from postroom.message import Context, Message
from postroom.messagebox.configuration.hosts import Host
from postroom.messagebox.connection import Condition, Connection
from postroom.messagebox.coordination.notifications import OwnHost
from postroom.messagebox.queues import Suspension
from postroom.messagebox.storage.copy_rows import SuspendedRow
from postroom.ports.send_ports import SendPort
from postroom.system_properties import BTS


class ResponsePublisher:
    """Publishes the responses of the send ports of one host. Many threads share it."""

    def __init__(self, host: Host, routing: RoutingTable, own_host: OwnHost | None = None) -> None:
        self._host = host
        self._routing = routing
        self._own_host = own_host

    def publish(
        self,
        connection: Connection,
        port: SendPort,
        request: SentMessage,
        response: Interchange,
        completion: Condition,
    ) -> None:
        """Publish a response and complete its request in one transaction. Raise ClaimLost if the request cannot be
        completed.

        A response that cannot be processed is suspended, and the caller gets a negative acknowledgement."""
        failure: MessageFailure | None = None
        try:
            document = read_document(port.receive_pipeline, port.response_maps, response)
            assert document is not None, "only authentication drops documents"
            message = document
        except MessageFailure as error:
            failure = error
            message = build_received(response, port.receive_pipeline.content_type)
        messages = [message.with_context(_build_context(port, request.context, message.context, response))]
        if failure is not None and request.has_caller:
            messages.append(request.build_nack(Suspension(code=failure.code, description=str(failure))))
        elif failure is None and is_ack_required(request.context):
            messages.append(request.build_ack())

        def make_batch(matcher: Matcher) -> ResponseBatch:
            failures = {} if failure is None else {0: failure}
            batch = ResponseBatch(self._host, messages, matcher, port=port, failures=failures)
            batch.condition = completion
            return batch

        Publisher(connection, self._routing, own_host=self._own_host).run(make_batch)


class ResponseBatch(AnswerBatch):
    """One response, and the acknowledgement if it has failed."""

    def __init__(
        self,
        host: Host,
        messages: Sequence[Message],
        matcher: Matcher,
        *,
        port: SendPort,
        failures: Mapping[int, MessageFailure],
    ) -> None:
        answers = [messages[0].message_id] if is_waiting(messages[0].context) and not failures else []
        super().__init__(host, messages, matcher, unit=uuid.uuid4(), answers=answers, failures=failures)
        self._port = port

    def build_suspended_row(self, row: int, failure: MessageFailure | BadValue) -> SuspendedRow:
        return replace(
            super().build_suspended_row(row, failure),
            service_id=self._port.port_id,
            adapter=self._port.adapter_kind,
            uri=self._port.uri,
            resumable=isinstance(failure, RoutingFailure),
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
