"""Receives the requests of two-way receive locations: publishes each, and lets its caller wait."""

from __future__ import annotations

import time
from datetime import timedelta

from postroom.agent.receiving.interchange import Interchange
from postroom.agent.routing.table import RoutingTable
from postroom.agent.two_way.requests import Request, RequestPublisher
from postroom.errors import is_environment_error
from postroom.messagebox.configuration.hosts import Host
from postroom.messagebox.connection import Connection
from postroom.messagebox.coordination.notifications import OwnHost
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.http.callers import Caller, Callers

#: How late the response to a request with an idempotency key may come. It is stored for the repeated request. If this
#: host instance has ended, it waits in the queue for that one.
LATE_RESPONSE_SECONDS = 3600.0


class RequestReceiver:
    """Publishes requests from many threads. The responses come to this host instance."""

    def __init__(
        self,
        *,
        host: Host,
        host_instance: int,
        callers: Callers,
        routing: RoutingTable,
        own_host: OwnHost | None = None,
    ) -> None:
        self._publisher = RequestPublisher(host, host_instance, routing, own_host)
        self.callers = callers

    def receive(
        self,
        connection: Connection,
        location: ReceiveLocation,
        interchange: Interchange,
        *,
        timeout: float,
        digest: bytes | None = None,
    ) -> Caller:
        """Publish a request. Return its caller, whose future gets the answer.

        A request whose idempotency key is in use joins the caller that waits, here or at another host instance, takes
        over from a host instance that has ended, or gets the stored response. Raise MessageFailure if the request
        fails, and KeyReused if its key came with another body."""
        now = time.monotonic()
        late = 0.0 if digest is None else LATE_RESPONSE_SECONDS
        caller = Caller(
            unit=interchange.interchange_id,
            location=location,
            deadline=now + timeout,
            kept_until=now + timeout + late,
            digest=digest,
        )
        # Before the publish: the response may come before its commit is confirmed.
        caller = self.callers.add(caller)
        if not self.callers.start_publish(caller):
            return caller
        request = Request(
            interchange=interchange,
            instance_id=caller.instance_id,
            token=caller.token,
            kept_for=timedelta(seconds=timeout + late),
            digest=digest,
        )
        try:
            result = self._publisher.publish(connection, location, request)
            if result.failure is not None:
                raise result.failure
        except BaseException as error:
            if digest is not None and is_environment_error(error):
                self.callers.publish_again(caller, error)
            else:
                # After a lost connection the request may have been published anyway.
                self.callers.end([caller], error)
            raise
        self.callers.confirm(caller, follows=result.is_repeated)
        return caller
