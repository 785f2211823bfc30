"""Two-way messaging of a host: sends requests through two-way send ports, and gives responses to waiting callers.

A solicit-response send port publishes the response as it completes the request (RR-10). The response carries the token
of its request, so that it is routed to the caller (RR-03, RR-04). The name of the port is promoted, so that others can
subscribe to its responses, too (CTX-22). If the request fails, or its response cannot be processed, the caller gets a
negative acknowledgement (RR-11).
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import asdict
from functools import partial

from postroom.adapters.contract import ReceivedResponse
from postroom.adapters.http.response_head import WITHOUT_BODY, ResponseHead, read_response_head
from postroom.agent.acknowledgements import SentMessage, is_ack_required, is_waiting
from postroom.agent.direct.direct_batch import DirectBatch, Publication, SuspendedAt
from postroom.agent.error_messages import FAILURE_CODES
from postroom.agent.publish import Publisher
from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.interchange import Interchange
from postroom.correlation_tokens import copy_token
from postroom.errors import (
    BadValue,
    ClaimLost,
    CorrelationFailure,
    DeliveryRefused,
    MessageFailure,
    ReadInterrupted,
    is_environment_error,
)
from postroom.hops import add_hop
from postroom.hosts.dequeue.processing import Disposition, Outcome, ThreadConnections
from postroom.hosts.messaging.failures import describe_sent
from postroom.message import Context, Message, format_content_type
from postroom.messagebox.configuration.hosts import Host
from postroom.messagebox.connection import Connection, transaction
from postroom.messagebox.coordination.notifications import OwnHost
from postroom.messagebox.queues import MAX_DESCRIPTION, ClaimedMessage, HostQueues, Suspension, check_claim
from postroom.messagebox.storage.claimed_messages import StoredContext, build_message
from postroom.messagebox.storage.stored_responses import StoredResponses
from postroom.messagebox.subscriptions import ServiceSubscriptions
from postroom.ports.send_ports import SendPort
from postroom.processes.backoff import retry_while_unavailable
from postroom.system_properties import BTS
from postroom.temporary_bodies import spool
from postroom.two_way.callers import Answer, Caller, Callers, MissingResponse
from postroom.two_way.single_document import build_received, read_document

_log = logging.getLogger(__name__)


class SolicitResponse:
    """Publishes the responses of two-way send ports. Many threads share it."""

    def __init__(self, host: Host, queues: HostQueues, routing: RoutingTable, own_host: OwnHost | None = None) -> None:
        self._host = host
        self._queues = queues
        self._routing = routing
        self._own_host = own_host

    def publish(
        self, port: SendPort, claimed: ClaimedMessage, received: ReceivedResponse, connections: ThreadConnections
    ) -> None:
        """Publish the response to a message, and complete the message in the same transaction. Raise ClaimLost."""
        sent = describe_sent(port, claimed)
        assert sent is not None, "a message without context cannot be built"
        response = Interchange(interchange_id=uuid.uuid4(), body=received.body, context=received.context)
        publication = self._build_publication(port, claimed, sent, response)
        retry_while_unavailable(lambda: self._publish(connections.get_writing(), publication))

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
            suspended_at=SuspendedAt(service_id=port.port_id, adapter=port.adapter_kind, uri=port.uri, resumable=True),
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
    return copy_token(request, add_hop(context, port.name, cause=request))


class ResponseDelivery:
    """Delivers the messages that are routed to waiting requests. A response without a caller is suspended."""

    def __init__(
        self, *, callers: Callers, queues: HostQueues, stored: StoredResponses, subscriptions: ServiceSubscriptions
    ) -> None:
        self._callers = callers
        self._stored = stored
        self._queues = queues
        self._subscriptions = subscriptions

    def deliver(self, claimed: ClaimedMessage, connections: ThreadConnections) -> Outcome:
        """Complete the response, and give it to its caller after the commit."""
        caller = self._callers.take_answered(claimed.instance_id, _read_token(claimed))
        if caller is None:
            return _suspend_without_caller(claimed)
        try:
            message = build_message(claimed, connections)
            answer = _build_answer(caller, message)
            if caller.has_key and _may_be_answered(message.context):
                self._queues.complete_message(connections.get_writing(), claimed)
                self._callers.keep(caller)
                caller.answer(answer)
                return Disposition.FINISHED
            transaction(
                connections.get_writing(),
                lambda connection: self._complete(connection, claimed, caller, answer),
                has_one_statement=not caller.has_key,
            )
        except ClaimLost:
            return self._return(caller, Disposition.DISCARD)
        except Exception as error:
            if isinstance(error, ReadInterrupted) or is_environment_error(error):
                return self._return(caller, Disposition.RELEASE)
            # The response of a two-way receive port that cannot be processed is suspended (RR-12).
            caller.answer(Answer(missing=MissingResponse.REFUSED))
            self._callers.forget(caller)
            if not isinstance(error, MessageFailure):
                _log.error("the response of instance %s failed unexpectedly", claimed.instance_id, exc_info=error)
            return _suspend(error)
        caller.answer(answer)
        return Disposition.FINISHED

    def _return(self, caller: Caller, outcome: Disposition) -> Disposition:
        """Let the caller wait again: its response is still in the MessageBox."""
        self._callers.put_back(caller)
        return outcome

    def _complete(self, connection: Connection, claimed: ClaimedMessage, caller: Caller, answer: Answer) -> None:
        completion = self._queues.build_completion(claimed)
        check_claim(self._subscriptions.complete_with_message(connection, claimed.instance_id, completion))
        if caller.has_key:
            content_type = answer.content_type if answer.missing is None else None
            chunks = () if answer.body is None else answer.body.chunks()
            self._stored.store(connection, caller.unit, content_type, chunks)
            if answer.head != ResponseHead():
                self._stored.store_head(connection, caller.unit, asdict(answer.head))


def _read_token(claimed: ClaimedMessage) -> str | None:
    context = None if claimed.context is None else StoredContext(claimed.context, {})
    return None if context is None else context.get(BTS.EpmRRCorrelationToken)


def _suspend_without_caller(claimed: ClaimedMessage) -> Suspension:
    if _read_token(claimed) is not None:
        return _suspend(CorrelationFailure())
    return Suspension(
        code="NO_RECEIVER",
        description="This host instance has no service for the instance that the message belongs to.\n"
        "Resume it when a host instance with the service runs.",
    )


def _build_answer(caller: Caller, message: Message) -> Answer:
    """Return what the caller gets: the response after the maps and the pipeline of the port, or that there is none."""
    if message.context.get(BTS.AckType) == "NACK":
        return Answer(missing=MissingResponse.REFUSED)
    maps = caller.location.response_maps
    outgoing = caller.location.send_pipeline.run(maps.running.map_message(message) if maps else message)
    if outgoing is None:
        return Answer()
    try:
        head = read_response_head(outgoing.context)
    except BadValue as error:
        raise DeliveryRefused(error.what, why=error.why, hint=error.hint) from None
    body = outgoing.body
    if body is None:
        return Answer(head=head)
    if head.status in WITHOUT_BODY:
        if body.body.size:
            raise DeliveryRefused(
                f"A response with the status {head.status} has no body, and this one has {body.body.size:,} bytes.",
                hint="Answer with another HTTP.ResponseStatusCode, or without a body.",
            )
        return Answer(head=head)
    # Read before the commit, after which the stored body may be deleted.
    return Answer(body=spool(body.body.chunks()), content_type=format_content_type(body), head=head)


def _may_be_answered(context: Context) -> bool:
    """Return True for the NACK of a suspended orchestration, which may answer when it is resumed."""
    return context.get(BTS.AckFailureCode) == FAILURE_CODES["ORCHESTRATION"]


def _suspend(error: Exception) -> Suspension:
    code = error.code if isinstance(error, MessageFailure) else "UNEXPECTED"
    return Suspension(code=code, description=str(error)[:MAX_DESCRIPTION], resumable=False)
