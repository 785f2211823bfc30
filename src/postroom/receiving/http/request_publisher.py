"""Publishes the requests of two-way receive locations. Each waits for its response (RR-01, RR-02).

A request carries a token. The instance subscription for the response with the same token commits together with the
request, so that no response can be missed. A request that fails is suspended and cannot be resumed (RR-12), because
its caller is gone by then.
"""

from __future__ import annotations

import time
from datetime import timedelta
from functools import partial

from postroom.agent.direct.direct_batch import DirectBatch, Endpoint, Publication
from postroom.agent.publish import Publisher
from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.authentication import authenticate, authentication_failure
from postroom.agent.streaming.documents import build_initial_context
from postroom.agent.streaming.interchange import Interchange
from postroom.agent.streaming.single_document import build_received, read_document
from postroom.correlation_tokens import add_token
from postroom.errors import MessageFailure, is_environment_error
from postroom.message import Message
from postroom.messagebox.configuration.hosts import Host
from postroom.messagebox.connection import Connection
from postroom.messagebox.coordination.notifications import OwnHost
from postroom.messagebox.subscriptions import SubscribingService
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.http.callers import Caller, Callers

#: How late the response to a request with an idempotency key may come. It is stored for the repeated request. If this
#: host instance has ended, it waits in the queue for that one.
LATE_RESPONSE_SECONDS = 3600.0


class RequestPublisher:
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
        self.callers = callers
        self._host = host
        self._host_instance = host_instance
        self._routing = routing
        self._own_host = own_host

    def publish(
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
        try:
            is_repeated = self._publish(connection, interchange, caller)
        except BaseException as error:
            if digest is not None and is_environment_error(error):
                self.callers.publish_again(caller, error)
            else:
                # After a lost connection the request may have been published anyway.
                self.callers.end([caller], error)
            raise
        self.callers.confirm(caller, follows=is_repeated)
        return caller

    def _publish(self, connection: Connection, interchange: Interchange, caller: Caller) -> bool:
        """Run the receive pipeline, and publish the request. Return True if it was published before, under the same
        key. Raise its failure: then it does not wait for a response."""
        location = caller.location
        failures: dict[int, MessageFailure] = {}
        try:
            message = self._receive(connection, interchange, caller)
        except MessageFailure as failure:
            failures[0] = failure
            received = build_received(interchange, location.pipeline.content_type)
            message = received.with_context(build_initial_context(location, interchange))
        if message is None:
            raise authentication_failure(location)
        publication = Publication(
            messages=[message],
            unit=interchange.interchange_id,
            digest=caller.digest,
            failures=failures,
            precondition=self.callers.build_response_wait(
                caller,
                SubscribingService(service_id=location.location_id, name=location.port_name),
                for_host_instance=self._host_instance,
                kept_for=timedelta(seconds=caller.kept_until - time.monotonic()) if caller.has_key else None,
            ),
            awaited_by=caller.instance_id,
            endpoint=Endpoint(
                service_id=location.location_id, adapter=location.adapter_kind, uri=location.uri, resumable=False
            ),
        )
        publisher = Publisher(connection, self._routing, own_host=self._own_host)
        batch = publisher.run(partial(DirectBatch, self._host, publication))
        if batch.suspended:
            raise batch.suspended[0]
        [published] = batch.published
        return published.repeated

    def _receive(self, connection: Connection, interchange: Interchange, caller: Caller) -> Message | None:
        """Return the request as it is published, or None if the receive port drops it. Raise MessageFailure."""
        location, check = caller.location, None
        if location.authentication != "none":
            check = partial(authenticate, location, login=self._routing.catch_up(connection).login)
        message = read_document(location.pipeline, location.maps, interchange, authenticate=check)
        if message is None:
            return None
        context = build_initial_context(location, interchange, message.context)
        return message.with_context(add_token(context, caller.token))
