"""The Endpoint Manager: brings messages to send ports, and resumed ones back to where they came in."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from datetime import timedelta

from postroom.adapters import Attempt
from postroom.agent.error_reports import Failure, type_in
from postroom.agent.failed_messages import FailedMessages
from postroom.agent.reports import Unroutable
from postroom.agent.resuming import ResumedInbound
from postroom.clock import Clock, system_clock
from postroom.errors import ClaimLost, PostroomError, ReadInterrupted, Unavailable, is_environment_error
from postroom.hosts.dequeue.outcomes import Outcome, Verdict
from postroom.hosts.dequeue.thread_connections import ThreadConnections
from postroom.hosts.messaging.send_ports import OpenSendPort, OpenSendPorts
from postroom.messagebox.configuration import ReceiveLocation, receive_locations
from postroom.messagebox.connection import Connection
from postroom.messagebox.queues import ClaimedMessage, HostQueues, Retry, Suspension
from postroom.messagebox.storage.stored_context import StoredContext
from postroom.messagebox.storage.stored_messages import message_of
from postroom.messagebox.storage.writing import Task

_log = logging.getLogger(__name__)

_DELIVER = 1
_AFTER_TROUBLE = timedelta(seconds=1)
_LONGEST_DESCRIPTION = 8000


class EndpointManager:
    """The service of the messaging class."""

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
        wanted = {one.service for one in claimed if one.task == _DELIVER and one.service is not None}
        self._ports.refresh(connection, claimed[0].routing_version, wanted)

    def handle(self, claimed: ClaimedMessage, connections: ThreadConnections) -> Outcome:
        if claimed.task == _DELIVER:
            return self._deliver(claimed, connections)
        if claimed.task == Task.JOIN_INSTANCE:
            return Suspension(
                code="NO_RECEIVER",
                description="Nothing in this host instance receives messages for the instance that they joined.\n"
                "Resume it when another one runs.",
            )
        return self._receive(claimed, connections)

    def close(self) -> None:
        self._ports.close()

    # -- out ---------------------------------------------------------------------------------------------------

    def _deliver(self, claimed: ClaimedMessage, connections: ThreadConnections) -> Outcome:
        port = self._ports.borrow(claimed.service)
        if port is None:
            return _port_is_gone(claimed)
        try:
            message = message_of(claimed, connections, port.written(claimed.attempt))
            attempt = Attempt(instance_id=claimed.instance_id, number=claimed.attempt + 1, group=claimed.group)
            port.shared.opened().send(port.prepared(message), attempt)
        except ClaimLost:
            return Verdict.DISCARD
        except ReadInterrupted:
            return Verdict.RELEASE
        except Exception as error:
            return self._failed(port, claimed, connections, error)
        finally:
            self._ports.give_back(port)
        return Verdict.COMPLETE

    def _failed(
        self, port: OpenSendPort, claimed: ClaimedMessage, connections: ThreadConnections, error: Exception
    ) -> Outcome:
        outcome = _failed(port, claimed, error)
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
            message_type=_type_of(claimed),
        )
        return self._routed(claimed, connections, failure, otherwise=outcome)

    def _routed(
        self, claimed: ClaimedMessage, connections: ThreadConnections, failure: Failure, *, otherwise: Suspension
    ) -> Outcome:
        """The error message is published; or the message is suspended after all, if nobody wants that (FMR-09)."""
        try:
            routed = self._failed_messages.route(connections.writing(), claimed, failure)
        except ClaimLost:
            return Verdict.DISCARD
        except Exception as error:
            if is_environment_error(error):
                return _after_trouble(error)
            _log.exception("the error message about instance %s could not be published", claimed.instance_id)
            return otherwise
        return Verdict.SETTLED if routed else otherwise

    # -- in ----------------------------------------------------------------------------------------------------

    def _receive(self, claimed: ClaimedMessage, connections: ThreadConnections) -> Outcome:
        def complete(connection: Connection) -> None:
            if self._queues.complete(connection, claimed.claim_id, [claimed.seq]) != 1:
                raise ClaimLost("The message was given to another host instance.")

        try:
            self._resumed.handle(connections.writing(), claimed, message_of(claimed, connections), complete)
        except ClaimLost:
            return Verdict.DISCARD
        except Exception as error:
            if is_environment_error(error):
                return _after_trouble(error)
            return self._failed_again(claimed, connections, error)
        return Verdict.SETTLED

    def _failed_again(self, claimed: ClaimedMessage, connections: ThreadConnections, error: Exception) -> Outcome:
        """A resumed message whose pipeline or routing failed once more."""
        code, description = _reason(error, f"instance {claimed.instance_id}")
        location = _where_it_came_in(connections, claimed.service_id)
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
            message_type=type_in(unroutable.context) if unroutable else _type_of(claimed),
            report_id=unroutable.report_id if unroutable else None,
        )
        return self._routed(claimed, connections, failure, otherwise=suspension)


def _port_is_gone(claimed: ClaimedMessage) -> Suspension:
    return Suspension(
        code="PORT_GONE",
        description=f"The send port {claimed.service_id} was deleted after the message was queued for it.\n"
        "Terminate the instance, or resume it when the port is there again.",
    )


def _failed(port: OpenSendPort, claimed: ClaimedMessage, error: Exception) -> Outcome:
    """A failed attempt: tried again while the port's policy allows and trying again can help, otherwise suspended."""
    code, description = _reason(error, f"send port {port.port.name}")
    terminal = isinstance(error, PostroomError) and not error.can_retry
    if not terminal and claimed.attempt < port.port.retry_count:
        return Retry(delay=port.port.retry_interval, code=code, description=description)
    adapter, uri = port.endpoint(claimed.context)
    return Suspension(code=code, description=description, adapter=adapter, uri=uri)


def _after_trouble(error: Exception) -> Retry:
    """Retry the work without limit, after a pause: the environment caused the error, not the message."""
    return Retry(delay=_AFTER_TROUBLE, code=Unavailable.code, description=str(error)[:_LONGEST_DESCRIPTION])


def _type_of(claimed: ClaimedMessage) -> str | None:
    return None if claimed.context is None else type_in(StoredContext(claimed.context, {}))


def _where_it_came_in(connections: ThreadConnections, location_id: uuid.UUID | None) -> ReceiveLocation | None:
    if location_id is None:
        return None
    try:
        return next((one for one in receive_locations(connections.writing()) if one.location_id == location_id), None)
    except PostroomError:
        _log.warning("the receive location %s could not be read", location_id)
        return None


def _reason(error: Exception, what: str) -> tuple[str, str]:
    if isinstance(error, PostroomError):
        return error.code, str(error)[:_LONGEST_DESCRIPTION]
    _log.error("%s failed unexpectedly", what, exc_info=error)
    description = f"{what} failed unexpectedly.\n{type(error).__name__}: {error}\nThe traceback is in the host's log."
    return "UNEXPECTED", description[:_LONGEST_DESCRIPTION]
