"""The Endpoint Manager: delivers messages to send ports, and resumes inbound messages at their receive location."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from datetime import timedelta

from postroom.adapters import Attempt
from postroom.agent.error_reports import Failure, get_message_type
from postroom.agent.failed_messages import FailedMessages
from postroom.agent.reports import Unroutable
from postroom.agent.resuming import ResumedInbound
from postroom.clock import Clock, system_clock
from postroom.errors import ClaimLost, PostroomError, ReadInterrupted, Unavailable, is_environment_error
from postroom.hosts.dequeue.service import Disposition, Outcome, ThreadConnections
from postroom.hosts.messaging.send_ports import OpenSendPort, OpenSendPorts
from postroom.messagebox.configuration import ReceiveLocation, read_receive_locations
from postroom.messagebox.connection import Connection
from postroom.messagebox.queues import ClaimedMessage, HostQueues, Retry, Suspension
from postroom.messagebox.storage.copy_rows import Task
from postroom.messagebox.storage.stored_messages import StoredContext, build_message

_log = logging.getLogger(__name__)

_DELIVER = 1
_ENVIRONMENT_RETRY_DELAY = timedelta(seconds=1)
_MAX_DESCRIPTION = 8000


class EndpointManager:
    """The service of the messaging service class."""

    def __init__(
        self,
        *,
        ports: OpenSendPorts,
        queues: HostQueues,
        resumed: ResumedInbound,
        clock: Clock = system_clock,
    ) -> None:
        self._ports = ports
        self._queues = queues
        self._resumed = resumed
        self._failed_messages = FailedMessages(queues)
        self._clock = clock

    def prepare(self, connection: Connection, claimed: Sequence[ClaimedMessage]) -> None:
        services = {message.service for message in claimed if message.task == _DELIVER and message.service is not None}
        self._ports.refresh(connection, claimed[0].routing_version, services)

    def handle(self, claimed: ClaimedMessage, connections: ThreadConnections) -> Outcome:
        if claimed.task == _DELIVER:
            return self._deliver(claimed, connections)
        if claimed.task == Task.JOIN_INSTANCE:
            return Suspension(
                code="NO_RECEIVER",
                description="This host instance has no service for the instance that the message belongs to.\n"
                "Resume it when a host instance with the service runs.",
            )
        return self._receive(claimed, connections)

    def close(self) -> None:
        self._ports.close()

    # -- out ---------------------------------------------------------------------------------------------------

    def _deliver(self, claimed: ClaimedMessage, connections: ThreadConnections) -> Outcome:
        port = self._ports.borrow(claimed.service)
        if port is None:
            return _suspend_for_deleted_port(claimed)
        try:
            message = build_message(claimed, connections, port.get_context_values(claimed.attempt))
            attempt = Attempt(instance_id=claimed.instance_id, number=claimed.attempt + 1, group=claimed.group)
            port.shared.get_open().send(port.map(message), attempt)
        except ClaimLost:
            return Disposition.DISCARD
        except ReadInterrupted:
            return Disposition.RELEASE
        except Exception as error:
            return self._handle_send_failure(port, claimed, connections, error)
        finally:
            self._ports.release(port)
        return Disposition.COMPLETE

    def _handle_send_failure(
        self, port: OpenSendPort, claimed: ClaimedMessage, connections: ThreadConnections, error: Exception
    ) -> Outcome:
        outcome = _retry_or_suspend(port, claimed, error)
        if not port.port.route_failures or not isinstance(outcome, Suspension):
            return outcome
        failure = Failure(
            code=outcome.code,
            description=outcome.description,
            message_id=claimed.message_id,
            instance_id=claimed.instance_id,
            failed_at=self._clock(),
            adapter=outcome.adapter,
            uri=outcome.uri,
            send_port=port.port.name,
            message_type=_get_message_type(claimed),
        )
        return self._route_failure(claimed, connections, failure, otherwise=outcome)

    def _route_failure(
        self, claimed: ClaimedMessage, connections: ThreadConnections, failure: Failure, *, otherwise: Suspension
    ) -> Outcome:
        """Publish an error message. Return ``otherwise`` if it has no subscriber (FMR-09)."""
        try:
            routed = self._failed_messages.route(connections.writing(), claimed, failure)
        except ClaimLost:
            return Disposition.DISCARD
        except Exception as error:
            if is_environment_error(error):
                return _retry_after_environment_error(error)
            _log.exception("the error message for instance %s could not be published", claimed.instance_id)
            return otherwise
        return Disposition.FINISHED if routed else otherwise

    # -- in ----------------------------------------------------------------------------------------------------

    def _receive(self, claimed: ClaimedMessage, connections: ThreadConnections) -> Outcome:
        def complete(connection: Connection) -> None:
            if self._queues.complete(connection, claimed.claim_id, [claimed.seq]) != 1:
                raise ClaimLost("Another host instance has taken over the message.")

        try:
            self._resumed.handle(connections.writing(), claimed, build_message(claimed, connections), complete)
        except ClaimLost:
            return Disposition.DISCARD
        except Exception as error:
            if is_environment_error(error):
                return _retry_after_environment_error(error)
            return self._handle_resume_failure(claimed, connections, error)
        return Disposition.FINISHED

    def _handle_resume_failure(
        self, claimed: ClaimedMessage, connections: ThreadConnections, error: Exception
    ) -> Outcome:
        """Suspend a resumed message whose pipeline or routing failed again, or publish an error message."""
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


def _suspend_for_deleted_port(claimed: ClaimedMessage) -> Suspension:
    return Suspension(
        code="PORT_GONE",
        description=f"The send port {claimed.service_id} was deleted after the message was queued for it.\n"
        "Terminate the instance, or deploy the port again and resume the instance.",
    )


def _retry_or_suspend(port: OpenSendPort, claimed: ClaimedMessage, error: Exception) -> Outcome:
    """Retry if the error allows it and the port has retries left. Otherwise suspend."""
    code, description = _describe_error(error, f"send port {port.port.name}")
    terminal = isinstance(error, PostroomError) and not error.can_retry
    if not terminal and claimed.attempt < port.port.retry_count:
        return Retry(delay=port.port.retry_interval, code=code, description=description)
    adapter, uri = port.get_endpoint(claimed.context)
    return Suspension(code=code, description=description, adapter=adapter, uri=uri)


def _retry_after_environment_error(error: Exception) -> Retry:
    """Retry without limit, after a pause: the environment caused the error, not the message."""
    return Retry(delay=_ENVIRONMENT_RETRY_DELAY, code=Unavailable.code, description=str(error)[:_MAX_DESCRIPTION])


def _get_message_type(claimed: ClaimedMessage) -> str | None:
    return None if claimed.context is None else get_message_type(StoredContext(claimed.context, {}))


def _find_receive_location(connections: ThreadConnections, location_id: uuid.UUID | None) -> ReceiveLocation | None:
    if location_id is None:
        return None
    try:
        locations = read_receive_locations(connections.writing())
        return next((location for location in locations if location.location_id == location_id), None)
    except PostroomError:
        _log.warning("the receive location %s could not be read", location_id)
        return None


def _describe_error(error: Exception, what: str) -> tuple[str, str]:
    """Return the code and the description of an error."""
    if isinstance(error, PostroomError):
        return error.code, str(error)[:_MAX_DESCRIPTION]
    _log.error("%s failed unexpectedly", what, exc_info=error)
    description = f"{what} failed unexpectedly.\n{type(error).__name__}: {error}\nThe traceback is in the host's log."
    return "UNEXPECTED", description[:_MAX_DESCRIPTION]
