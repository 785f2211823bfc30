"""The Endpoint Manager: delivers messages to send ports, and resumes inbound messages at their receive location."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, cast

from postroom.adapters import Attempt
from postroom.adapters.contract import BatchSendAdapter, Outgoing, ReceivedResponse, SolicitAdapter
from postroom.agent.resuming import ResumedInbound
from postroom.agent.routing.table import RoutingTable
from postroom.clock import Clock, system_clock
from postroom.errors import ClaimLost, PipelineFailure, PostroomError, ReadInterrupted, Unavailable
from postroom.hosts.dequeue.processing import UNLIMITED, Disposition, Limits, Outcome, ThreadConnections, WaitingSend
from postroom.hosts.messaging.acknowledgements import Acknowledgements
from postroom.hosts.messaging.circuit_breakers import CircuitBreakers
from postroom.hosts.messaging.delivery_times import (
    check_expiration,
    postpone_to_service_window,
    postpone_until_circuit_closes,
)
from postroom.hosts.messaging.failures import MessagingFailures, describe_removed, describe_sent
from postroom.hosts.messaging.open_send_ports import OpenSendPort, OpenSendPorts, OpenTransport
from postroom.hosts.messaging.response_waits import Exchange, ResponseWaits
from postroom.hosts.messaging.two_way import ResponseDelivery, SolicitResponse
from postroom.message import Message
from postroom.messagebox.configuration.hosts import Host
from postroom.messagebox.configuration.services import read_removed_services
from postroom.messagebox.connection import Connection
from postroom.messagebox.coordination.notifications import OwnHost
from postroom.messagebox.queues import DELIVERIES, ClaimedMessage, HostQueues, QueueTask, Suspension
from postroom.messagebox.storage.claimed_messages import build_message
from postroom.ports.send_ports import SendPort
from postroom.processes.backoff import retry_while_unavailable
from postroom.system_properties import BTS

_log = logging.getLogger(__name__)

_ACK_REQUIRED = BTS.AckRequired.key


class EndpointManager:
    """The service of the messaging service class."""

    def __init__(
        self,
        *,
        host: Host,
        ports: OpenSendPorts,
        queues: HostQueues,
        routing: RoutingTable,
        responses: ResponseDelivery,
        own_host: OwnHost | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self._ports = ports
        self._queues = queues
        self._resumed = ResumedInbound(host.name, routing)
        self._responses = responses
        self._waits = ResponseWaits()
        self._solicit_response = SolicitResponse(host, queues, routing, own_host)
        self._clock = clock
        self._acknowledgements = Acknowledgements(host, queues, clock)
        self._circuits = CircuitBreakers(host.host_id)
        self._failures = MessagingFailures(queues, self._acknowledgements, clock)

    def prepare(self, connection: Connection, claimed: Sequence[ClaimedMessage]) -> None:
        services = {
            message.service for message in claimed if message.task in DELIVERIES and message.service is not None
        }
        self._ports.refresh(connection, claimed[0].routing_version, services)
        if guarded := self._ports.find_guarded(services):
            self._circuits.refresh(connection, guarded)

    def handle(self, batch: Sequence[ClaimedMessage], connections: ThreadConnections) -> list[Outcome] | WaitingSend:
        claimed = batch[0]
        if claimed.task not in DELIVERIES:
            if claimed.task == QueueTask.JOIN_INSTANCE:
                return [self._responses.deliver(claimed, connections)]
            return [self._publish_resumed(claimed, connections)]
        open_port = self._ports.borrow(claimed.service)
        if open_port is None:
            return [self._suspend_for_removed_port(each, connections) for each in batch]
        is_waiting = False
        try:
            if len(batch) > 1:
                return self._deliver_batch(open_port, batch, connections)
            outcome = self._deliver(open_port, claimed, connections)
            is_waiting = isinstance(outcome, WaitingSend)
            return outcome if isinstance(outcome, WaitingSend) else [outcome]
        finally:
            if not is_waiting:
                self._ports.release(open_port)

    def _finish_waiting(
        self, open_port: OpenSendPort, claimed: ClaimedMessage, exchange: Exchange, connections: ThreadConnections
    ) -> list[Outcome]:
        """Return the outcome of a message whose receiver has answered, or does not answer."""
        try:
            return [self._finish(open_port, claimed, exchange.finish(), connections)]
        except Exception as error:
            return [self._handle_error(open_port, claimed, connections, error)]
        finally:
            self._ports.release(open_port)

    def close(self) -> None:
        self._waits.close()
        self._ports.close()

    def get_limits(self, claimed: ClaimedMessage) -> Limits:
        if claimed.task not in DELIVERIES:
            return UNLIMITED
        limits = self._ports.get_limits(claimed.service)
        return limits if claimed.task == QueueTask.DELIVER else limits._replace(batch=1)

    def _deliver(
        self, open_port: OpenSendPort, claimed: ClaimedMessage, connections: ThreadConnections
    ) -> Outcome | WaitingSend:
        """Return the outcome of a message, or the send that waits for the receiver. That keeps the port in use."""
        try:
            prepared = self._prepare_send(open_port, claimed, connections)
            if not isinstance(prepared, _PreparedSend):
                return prepared
            response = self._send(prepared, solicits=open_port.port.is_two_way)
            if response is not None and not isinstance(response, ReceivedResponse):
                if not self._waits.is_answered(response):
                    return WaitingSend(
                        start=partial(self._waits.start, response),
                        finish=partial(self._finish_waiting, open_port, claimed, response),
                    )
                response = response.finish()
            return self._finish(open_port, claimed, response, connections)
        except Exception as error:
            return self._handle_error(open_port, claimed, connections, error)

    @staticmethod
    def _send(prepared: _PreparedSend, *, solicits: bool) -> ReceivedResponse | Exchange | None:
        """Send a message. Return the response, if one is solicited, or the exchange if the receiver may take long."""
        message, attempt = prepared.message, prepared.attempt
        if message is None:
            if solicits:
                raise PipelineFailure(
                    "The send pipeline consumed the request.", why="A two-way send port needs something to send."
                )
            return None
        adapter = prepared.transport.shared.get_open()
        if (begins := prepared.transport.shared.begins) is not None:
            return begins.begin_send(message, attempt, solicits=solicits)
        if solicits:
            return cast(SolicitAdapter, adapter).solicit(message, attempt)
        adapter.send(message, attempt)
        return None

    def _deliver_batch(
        self, open_port: OpenSendPort, batch: Sequence[ClaimedMessage], connections: ThreadConnections
    ) -> list[Outcome]:
        """Deliver messages of one port together. Each message has its own outcome."""
        results: dict[int, _PreparedSend | Outcome] = {}
        for claimed in batch:
            try:
                results[claimed.seq] = self._prepare_send(open_port, claimed, connections)
            except Exception as error:
                results[claimed.seq] = self._handle_error(open_port, claimed, connections, error)
        prepared = {seq: result for seq, result in results.items() if isinstance(result, _PreparedSend)}
        errors = _send_prepared(prepared)
        for claimed in batch:
            if claimed.seq not in prepared:
                continue
            try:
                if (failure := errors.get(claimed.seq)) is not None:
                    raise failure
                results[claimed.seq] = self._finish(open_port, claimed, None, connections)
            except Exception as error:
                results[claimed.seq] = self._handle_error(open_port, claimed, connections, error)
        return [outcome for outcome in results.values() if not isinstance(outcome, _PreparedSend)]

    def _prepare_send(
        self, open_port: OpenSendPort, claimed: ClaimedMessage, connections: ThreadConnections
    ) -> _PreparedSend | Outcome:
        """Return the message as its adapter sends it, or an outcome if it is not sent now."""
        transport = open_port.choose_transport(claimed)
        now = self._clock()
        check_expiration(open_port.port, claimed, now)
        waiting = postpone_to_service_window(open_port.port, claimed, now)
        if isinstance(waiting, Suspension):
            return self._failures.suspend_unsendable(
                claimed, connections, waiting, describe_sent(open_port.port, claimed)
            )
        if waiting is not None:
            return waiting
        if open_port.port.settings.circuit_breaker is not None and self._circuits.is_paused(claimed):
            return postpone_until_circuit_closes(open_port.port, claimed, now)
        message = build_message(claimed, connections, transport.get_context_values(claimed))
        attempt = Attempt(
            instance_id=claimed.delivery_id,
            number=claimed.attempt + 1,
            group=claimed.group,
            sequence_number=claimed.seq if claimed.task == QueueTask.DELIVER_IN_ORDER else None,
        )
        return _PreparedSend(transport, open_port.process(message), attempt)

    def _finish(
        self,
        open_port: OpenSendPort,
        claimed: ClaimedMessage,
        response: ReceivedResponse | None,
        connections: ThreadConnections,
    ) -> Outcome:
        """Return the outcome of a message that was sent. Publish the response of a two-way port."""
        if response is not None:
            self._solicit_response.publish(open_port.port, claimed, response, connections)
            self._record_success(open_port, connections)
            return Disposition.FINISHED
        self._record_success(open_port, connections)
        if claimed.context and _ACK_REQUIRED in claimed.context:
            return self._acknowledge(open_port.port, claimed, connections)
        return Disposition.COMPLETE

    def _handle_error(
        self, open_port: OpenSendPort, claimed: ClaimedMessage, connections: ThreadConnections, error: Exception
    ) -> Outcome:
        """Return the outcome of a message that was not sent."""
        if isinstance(error, ClaimLost):
            return Disposition.DISCARD
        if isinstance(error, ReadInterrupted):
            return Disposition.RELEASE
        if open_port.port.settings.circuit_breaker is not None:
            try:
                is_probe = self._circuits.record_failure(open_port.port, connections.get_writing, error)
            except Unavailable as unavailable:
                _log.warning(
                    "the circuit breaker of send port %s could not be stored: %s", open_port.port.name, unavailable
                )
                is_probe = False
            if is_probe:
                return postpone_until_circuit_closes(open_port.port, claimed, self._clock())
        return self._failures.handle_send_failure(open_port.port, claimed, connections, error)

    def _record_success(self, open_port: OpenSendPort, connections: ThreadConnections) -> None:
        """Tell the circuit breaker of the port. Never fail: the message is sent already."""
        if open_port.port.settings.circuit_breaker is None:
            return
        try:
            self._circuits.record_success(open_port.port, connections.get_writing)
        except Unavailable as error:
            _log.warning("the circuit breaker of send port %s could not be closed: %s", open_port.port.name, error)

    def _acknowledge(self, port: SendPort, claimed: ClaimedMessage, connections: ThreadConnections) -> Outcome:
        """Complete a sent message, with an ACK if its publisher wants one."""
        sent = describe_sent(port, claimed)

        def complete() -> Outcome:
            connection = connections.get_writing()
            if sent is None or not self._acknowledgements.is_ack_wanted(connection, sent):
                return Disposition.COMPLETE
            self._acknowledgements.complete(connection, claimed, sent)
            return Disposition.FINISHED

        return retry_while_unavailable(complete)

    def _suspend_for_removed_port(self, claimed: ClaimedMessage, connections: ThreadConnections) -> Outcome:
        removed = None
        with suppress(PostroomError):
            services = read_removed_services(connections.get_writing())
            removed = next((service for service in services if service.id == claimed.service_id), None)
        port = repr(removed.name) if removed is not None else f"with the id {claimed.service_id}"
        suspension = Suspension(
            code="PORT_GONE",
            description=f"The send port {port} was removed after the message was queued for it.\n"
            "Reroute the instance, terminate it, or apply an application that has the port again and resume it.",
        )
        sent = None if removed is None else describe_removed(claimed, removed.name, removed.two_way)
        return self._failures.suspend_unsendable(claimed, connections, suspension, sent)

    def _publish_resumed(self, claimed: ClaimedMessage, connections: ThreadConnections) -> Outcome:
        """Publish a received message that was resumed, or a message that is rerouted."""
        complete = partial(self._queues.complete_message, claimed=claimed)
        try:
            self._resumed.handle(connections.get_writing(), claimed, build_message(claimed, connections), complete)
        except ClaimLost:
            return Disposition.DISCARD
        except Exception as error:
            return self._failures.handle_resume_failure(claimed, connections, error)
        return Disposition.FINISHED


class _PreparedSend(NamedTuple):
    """A message that its transport can send. ``message`` is None if the send pipeline consumed it."""

    transport: OpenTransport
    message: Message | None
    attempt: Attempt


def _send_prepared(prepared: Mapping[int, _PreparedSend]) -> dict[int, Exception]:
    """Send the messages of one port, those of each transport together. Return the errors, by sequence number."""
    errors: dict[int, Exception] = {}
    by_transport: defaultdict[OpenTransport, dict[int, Outgoing]] = defaultdict(dict)
    for seq, send in prepared.items():
        if send.message is not None:
            by_transport[send.transport][seq] = send.message, send.attempt
    for open_transport, batch in by_transport.items():
        try:
            adapter = open_transport.shared.get_open()
            if open_transport.transport.adapter_type.max_batch > 1:
                results = cast(BatchSendAdapter, adapter).send_batch(list(batch.values()))
                errors |= {seq: error for seq, error in zip(batch, results, strict=True) if error is not None}
                continue
        except Exception as error:
            errors |= dict.fromkeys(batch, error)
            continue
        for seq, outgoing in batch.items():
            try:
                adapter.send(*outgoing)
            except Exception as error:
                errors[seq] = error
    return errors
