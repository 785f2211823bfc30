"""Outcomes of messages that could not be sent or resumed: a retry, a suspension, or an error message."""

from __future__ import annotations

import logging
import uuid
from datetime import timedelta

from postroom.adapters.dynamic.addresses import Endpoint, get_endpoint
from postroom.agent.error_messages import Failure, get_message_type
from postroom.agent.failed_messages import FailedMessages
from postroom.agent.routing_failure_reports import Unroutable
from postroom.clock import Clock
from postroom.errors import ClaimLost, PostroomError, Unavailable, is_environment_error
from postroom.hosts.dequeue.service import Disposition, Outcome, ThreadConnections
from postroom.messagebox.configuration import ReceiveLocation, SendPort, read_receive_locations
from postroom.messagebox.queues import MAX_DESCRIPTION, ClaimedMessage, HostQueues, ScheduledRetry, Suspension
from postroom.messagebox.storage.stored_messages import StoredContext

_log = logging.getLogger(__name__)

_ENVIRONMENT_RETRY_DELAY = timedelta(seconds=1)


class MessagingFailures:
    """Decides about failed messages of send ports and receive locations. Error messages are published here."""

    def __init__(self, queues: HostQueues, clock: Clock) -> None:
        self._failed_messages = FailedMessages(queues)
        self._clock = clock

    def handle_send_failure(
        self, port: SendPort, claimed: ClaimedMessage, connections: ThreadConnections, error: Exception
    ) -> Outcome:
        """Retry the message, suspend it, or publish an error message."""
        outcome = _retry_or_suspend(port, claimed, error)
        if not port.route_failures or not isinstance(outcome, Suspension):
            return outcome
        failure = Failure(
            code=outcome.code,
            description=outcome.description,
            message_id=claimed.message_id,
            instance_id=claimed.instance_id,
            failed_at=self._clock(),
            adapter=outcome.adapter,
            uri=outcome.uri,
            send_port=port.name,
            message_type=_get_message_type(claimed),
        )
        return self._route_failure(claimed, connections, failure, otherwise=outcome)

    def handle_resume_failure(
        self, claimed: ClaimedMessage, connections: ThreadConnections, error: Exception
    ) -> Outcome:
        """Suspend a resumed message whose pipeline or routing failed again, or publish an error message."""
        if is_environment_error(error):
            return _retry_after_environment_error(error)
        code, description = _describe_error(error, f"instance {claimed.instance_id}")
        location = _find_receive_location(connections, claimed.service_id)
        if location is None:
            return Suspension(code=code, description=description)
        adapter = location.adapter_kind
        suspension = Suspension(code=code, description=description, adapter=adapter, uri=location.uri)
        if not location.route_failures:
            return suspension
        unroutable = error if isinstance(error, Unroutable) else None
        failure = Failure(
            code=code,
            description=description,
            message_id=claimed.message_id,
            instance_id=claimed.instance_id,
            failed_at=self._clock(),
            adapter=adapter,
            uri=location.uri,
            receive_port=location.port_name,
            message_type=get_message_type(unroutable.context) if unroutable else _get_message_type(claimed),
            report_id=unroutable.report_id if unroutable else None,
        )
        return self._route_failure(claimed, connections, failure, otherwise=suspension)

    def _route_failure(
        self, claimed: ClaimedMessage, connections: ThreadConnections, failure: Failure, *, otherwise: Suspension
    ) -> Outcome:
        """Publish an error message. Return ``otherwise`` if it has no subscriber (FMR-09)."""
        try:
            routed = self._failed_messages.route(connections.get_writing(), claimed, failure)
        except ClaimLost:
            return Disposition.DISCARD
        except Exception as error:
            if is_environment_error(error):
                return _retry_after_environment_error(error)
            _log.exception("the error message for instance %s could not be published", claimed.instance_id)
            return otherwise
        return Disposition.FINISHED if routed else otherwise


def _retry_or_suspend(port: SendPort, claimed: ClaimedMessage, error: Exception) -> Outcome:
    """Retry if the error allows it and the port has retries left. Otherwise suspend."""
    code, description = _describe_error(error, f"send port {port.name}")
    terminal = isinstance(error, PostroomError) and not error.can_retry
    if not terminal and claimed.attempt < port.retry_count:
        return ScheduledRetry(delay=port.retry_interval, code=code, description=description)
    adapter, uri = _get_endpoint(port, claimed.context)
    return Suspension(code=code, description=description, adapter=adapter, uri=uri)


def _get_endpoint(port: SendPort, context: str | None) -> Endpoint:
    """Return the adapter and the address of a message: those of the port, or of the message if the port is dynamic."""
    if port.adapter_type.is_dynamic and context is not None:
        return get_endpoint(StoredContext(context, {}))
    return Endpoint(port.adapter_kind, port.uri)


def _retry_after_environment_error(error: Exception) -> ScheduledRetry:
    """Retry without limit, after a pause: the environment caused the error, not the message."""
    return ScheduledRetry(
        delay=_ENVIRONMENT_RETRY_DELAY, code=Unavailable.code, description=str(error)[:MAX_DESCRIPTION]
    )


def _get_message_type(claimed: ClaimedMessage) -> str | None:
    return None if claimed.context is None else get_message_type(StoredContext(claimed.context, {}))


def _find_receive_location(connections: ThreadConnections, location_id: uuid.UUID | None) -> ReceiveLocation | None:
    if location_id is None:
        return None
    try:
        locations = read_receive_locations(connections.get_writing())
        return next((location for location in locations if location.location_id == location_id), None)
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
