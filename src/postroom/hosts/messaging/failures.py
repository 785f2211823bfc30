"""Outcomes of messages that could not be sent or resumed: a retry, a suspension, or an error message."""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from postroom.adapters.dynamic.addresses import TransportAddress, get_transport_address
from postroom.agent.acknowledgements import AcknowledgedMessage, ReceivedMessage, SentMessage
from postroom.agent.error_messages import Failure, get_message_type, is_suspended_as_non_resumable
from postroom.agent.failed_messages import FailedMessages, describe_failure
from postroom.agent.routing_failure_reports import Unroutable
from postroom.clock import Clock
from postroom.errors import ClaimLost, DeliveryFailure, PostroomError, Unavailable, is_environment_error
from postroom.hosts.dequeue.processing import Disposition, Outcome, ThreadConnections
from postroom.hosts.messaging.acknowledgements import Acknowledgements
from postroom.hosts.messaging.delivery_times import choose_transport, count_remaining_retries, limit_to_expiration
from postroom.messagebox.queues import (
    MAX_DESCRIPTION,
    OUT_OF_ORDER,
    ClaimedMessage,
    HostQueues,
    QueueTask,
    ScheduledRetry,
    Suspension,
)
from postroom.messagebox.storage.claimed_messages import StoredContext
from postroom.ports.receive_locations import ReceiveLocation, find_receive_location
from postroom.ports.send_ports import SendPort, Transport
from postroom.values import value_to_json

_log = logging.getLogger(__name__)

_ENVIRONMENT_RETRY_DELAY = timedelta(seconds=1)


class MessagingFailures:
    """Decides about failed messages of send ports and receive locations. Error messages are published here."""

    def __init__(self, queues: HostQueues, acknowledgements: Acknowledgements, clock: Clock) -> None:
        self._failed_messages = FailedMessages(queues)
        self._acknowledgements = acknowledgements
        self._clock = clock

    def handle_send_failure(
        self, port: SendPort, claimed: ClaimedMessage, connections: ThreadConnections, error: Exception
    ) -> Outcome:
        """Retry the message, suspend it, or publish an error message. The last two also publish a NACK."""
        outcome = _retry_or_suspend(port, claimed, error, self._clock())
        if not isinstance(outcome, Suspension):
            return outcome
        failure = None
        if port.settings.route_failures:
            failure = describe_failure(claimed, outcome, self._clock(), send_port=port.name)
        return self._suspend_or_route(claimed, connections, outcome, describe_sent(port, claimed), failure)

    def suspend_unsendable(
        self, claimed: ClaimedMessage, connections: ThreadConnections, suspension: Suspension, sent: SentMessage | None
    ) -> Outcome:
        """Suspend a message that cannot be sent now, without an attempt, and publish a NACK."""
        return self._suspend_or_route(claimed, connections, suspension, sent, None)

    def handle_resume_failure(
        self, claimed: ClaimedMessage, connections: ThreadConnections, error: Exception
    ) -> Outcome:
        """Suspend a resumed message whose pipeline or routing failed again, or publish an error message."""
        if is_environment_error(error):
            return _retry_after_environment_error(error)
        code, description = _describe_error(error, f"instance {claimed.instance_id}")
        location = _find_receive_location(connections, claimed.service_id)
        if location is None:
            return Suspension(code=code, description=description, resumable=_is_resumable(claimed))
        suspension = Suspension(
            code=code,
            description=description,
            adapter=location.adapter_kind,
            uri=location.uri,
            resumable=_is_resumable(claimed),
        )
        failure = describe_failure(claimed, suspension, self._clock(), receive_port=location.port_name)
        if isinstance(error, Unroutable):
            message_type = get_message_type(error.context)
            failure = replace(failure, message_type=message_type, report_id=error.report_id)
        routed = failure if location.route_failures else None
        return self._suspend_or_route(claimed, connections, suspension, _describe_received(location, claimed), routed)

    def _suspend_or_route(
        self,
        claimed: ClaimedMessage,
        connections: ThreadConnections,
        suspension: Suspension,
        failed: AcknowledgedMessage | None,
        failure: Failure | None,
    ) -> Outcome:
        """Publish an error message about ``failure`` or, if it has no subscriber, suspend the original (FMR-09).
        Publish a NACK in both cases (FMR-07). Return ``suspension`` if a defect prevents it."""
        try:
            connection = connections.get_writing()
            nack = None
            if failed is not None and self._acknowledgements.is_nack_wanted(connection, failed):
                nack = failed.build_nack(suspension)
            if failure is not None:
                publish_nack = None
                if nack is not None:
                    publish_nack = partial(self._acknowledgements.publish_in_transaction, message=nack)
                if self._failed_messages.route(connection, claimed, failure, and_publish=publish_nack):
                    return Disposition.FINISHED
            if nack is None:
                return suspension
            self._acknowledgements.suspend(connection, claimed, suspension, nack)
            return Disposition.SUSPENDED
        except ClaimLost:
            return Disposition.DISCARD
        except Exception as error:
            if is_environment_error(error):
                return _retry_after_environment_error(error)
            _log.exception(
                "the failure of instance %s could not be published",
                claimed.instance_id,
                extra=claimed.log_ids,
            )
            return suspension


def describe_sent(port: SendPort, claimed: ClaimedMessage) -> SentMessage | None:
    """Return what an acknowledgement says about a message. None if the message is gone."""
    uri = _get_address(choose_transport(port, claimed), claimed.context).uri
    return _describe_sent(claimed, port.port_id, port.name, is_two_way=port.is_two_way, uri=uri)


def describe_removed(claimed: ClaimedMessage, port_name: str, is_two_way: bool) -> SentMessage | None:
    """Return what a NACK says about a message of a send port that was removed. None if the message is gone."""
    return _describe_sent(claimed, claimed.service_id, port_name, is_two_way=is_two_way, uri=None)


def _describe_sent(
    claimed: ClaimedMessage, port_id: uuid.UUID | None, port_name: str, *, is_two_way: bool, uri: str | None
) -> SentMessage | None:
    if claimed.context is None or port_id is None:
        return None
    return SentMessage(
        message_id=claimed.message_id,
        instance_id=claimed.delivery_id,
        context=StoredContext(claimed.context, {}, claimed.originator),
        port_id=port_id,
        port_name=port_name,
        is_two_way=is_two_way,
        uri=uri,
    )


def _describe_received(location: ReceiveLocation, claimed: ClaimedMessage) -> ReceivedMessage | None:
    if claimed.context is None:
        return None
    return ReceivedMessage(
        message_id=claimed.message_id,
        instance_id=claimed.instance_id,
        context=StoredContext(claimed.context, {}, claimed.originator),
        port_id=location.port_id,
        port_name=location.port_name,
        uri=location.uri,
    )


def _retry_or_suspend(port: SendPort, claimed: ClaimedMessage, error: Exception, now: datetime) -> Outcome:
    """Retry if the error allows it and a transport of the port has attempts left. Otherwise suspend."""
    code, description = _describe_error(error, f"send port {port.name}")
    transport = choose_transport(port, claimed)
    properties = _get_updated_properties(error)
    if not isinstance(error, PostroomError) or error.can_retry:
        if count_remaining_retries(transport, claimed):
            delay = limit_to_expiration(timedelta(seconds=transport.settings.retry.interval), port, claimed, now)
            return ScheduledRetry(delay=delay, code=code, description=description, properties=properties)
        if port.backup is not None and transport is not port.backup:
            return ScheduledRetry(
                delay=timedelta(0), code=code, description=description, to_backup=True, properties=properties
            )
    adapter, uri = _get_address(transport, claimed.context)
    suspension = Suspension(
        code=code,
        description=description,
        adapter=adapter,
        uri=uri,
        resumable=_is_resumable(claimed),
        properties=properties,
    )
    if claimed.task == QueueTask.DELIVER_IN_ORDER and not port.settings.stop_on_failure:
        # The messages after it are delivered, so it would be out of order later (SND-12).
        description = f"{suspension.description}\n{OUT_OF_ORDER}"
        return replace(suspension, description=description, resumable=False, instance_id=claimed.delivery_id)
    return suspension


def _get_updated_properties(error: Exception) -> dict[str, Any] | None:
    """Return the context properties that the adapter updates, as they are stored."""
    if not isinstance(error, DeliveryFailure) or not error.properties_to_update:
        return None
    return {prop.key: value_to_json(prop.check(value)) for prop, value in error.properties_to_update.items()}


def _get_address(transport: Transport, context: str | None) -> TransportAddress:
    """Return the adapter and the address of a message: its own if the port is dynamic, otherwise the transport's."""
    if transport.is_dynamic and context is not None:
        return get_transport_address(StoredContext(context, {}))
    return TransportAddress(transport.adapter_kind, transport.uri)


def _retry_after_environment_error(error: Exception) -> ScheduledRetry:
    """Retry without limit, after a pause: the environment caused the error, not the message."""
    return ScheduledRetry(
        delay=_ENVIRONMENT_RETRY_DELAY, code=Unavailable.code, description=str(error)[:MAX_DESCRIPTION]
    )


def _is_resumable(claimed: ClaimedMessage) -> bool:
    return claimed.context is None or not is_suspended_as_non_resumable(StoredContext(claimed.context, {}))


def _find_receive_location(connections: ThreadConnections, location_id: uuid.UUID | None) -> ReceiveLocation | None:
    if location_id is None:
        return None
    try:
        return find_receive_location(connections.get_writing(), location_id)
    except PostroomError:
        _log.warning("the receive location %s could not be read", location_id)
        return None


def _describe_error(error: Exception, what: str) -> tuple[str, str]:
    """Return the code and the description of an error."""
    if isinstance(error, PostroomError):
        return error.code, str(error)[:MAX_DESCRIPTION]
    _log.error("%s failed unexpectedly", what, exc_info=error)
    description = f"{what} failed unexpectedly.\n{type(error).__name__}: {error}\nThe traceback is in the host's log."
    return "UNEXPECTED", description[:MAX_DESCRIPTION]
