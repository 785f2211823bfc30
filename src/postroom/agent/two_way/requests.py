"""Publishes the requests of two-way receive locations. Each waits for its response (RR-01, RR-02).

A request carries a token. The instance subscription for the response with the same token commits together with the
request, so that no response can be missed. A request that fails is suspended and cannot be resumed (RR-12), because
its caller is gone by then.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from postroom.agent.publish import Publisher
from postroom.agent.receiving.authentication import authenticate, authentication_failure
from postroom.agent.receiving.documents import build_initial_context
from postroom.agent.receiving.interchange import Interchange
from postroom.agent.routing.matching import Matcher
from postroom.agent.routing.table import RoutingTable
from postroom.agent.two_way.awaited_batch import AwaitedBatch
from postroom.agent.two_way.documents import build_received, read_document
from postroom.agent.two_way.tokens import build_response_wait
from postroom.correlation_tokens import add_token
from postroom.errors import BadValue, MessageFailure, PipelineFailure
from postroom.message import Message
from postroom.messagebox.configuration.hosts import Host, ServiceClass
from postroom.messagebox.connection import Condition, Connection
from postroom.messagebox.coordination.notifications import OwnHost
from postroom.messagebox.storage.copy_rows import SuspendedRow
from postroom.messagebox.subscriptions import ServiceSubscriptions, SubscribingService
from postroom.ports.receive_locations import ReceiveLocation


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request that a caller waits for. ``instance_id`` is the instance that its response is routed to, by its
    ``token``. ``digest`` is that of a request with an idempotency key, which waits for ``kept_for`` even if its host
    instance ends."""

    interchange: Interchange
    instance_id: uuid.UUID
    token: str
    kept_for: timedelta
    digest: bytes | None = None


@dataclass(frozen=True, kw_only=True)
class RequestResult:
    """What became of a request. With a ``failure`` it does not wait for a response."""

    failure: MessageFailure | BadValue | None = None
    is_repeated: bool = False
    """True if a request with the same key was published before. Nothing was published now."""


class RequestPublisher:
    """Publishes the requests whose callers one host instance holds. Many threads share it."""

    def __init__(self, host: Host, host_instance: int, routing: RoutingTable, own_host: OwnHost | None = None) -> None:
        self._host = host
        self._routing = routing
        self._own_host = own_host
        self._host_instance = host_instance
        self._subscriptions = ServiceSubscriptions(host, ServiceClass.MESSAGING_IN_PROCESS)

    def publish(self, connection: Connection, location: ReceiveLocation, request: Request) -> RequestResult:
        """Run the receive pipeline, and publish the request. It waits for its response if it has no failure."""
        failure: MessageFailure | None = None
        try:
            message = self._receive(connection, location, request)
        except MessageFailure as error:
            failure = error
            received = build_received(request.interchange, location.pipeline.content_type)
            message = received.with_context(build_initial_context(location, request.interchange))
        else:
            if message is None:
                return RequestResult(failure=authentication_failure(location))

        response_wait = build_response_wait(
            self._subscriptions,
            SubscribingService(service_id=location.location_id, name=location.port_name),
            request.instance_id,
            request.token,
            for_host_instance=self._host_instance,
            kept_for=None if request.digest is None else request.kept_for,
        )

        def make_batch(matcher: Matcher) -> RequestBatch:
            return RequestBatch(
                self._host,
                message,
                matcher,
                location=location,
                request=request,
                failure=failure,
                response_wait=response_wait,
            )

        batch = Publisher(connection, self._routing, own_host=self._own_host).run(make_batch)
        [published] = batch.published
        if published.suspended and published.repeated:
            return RequestResult(failure=PipelineFailure("The first request with this key failed."))
        return RequestResult(failure=batch.failure, is_repeated=published.repeated)

    def _receive(self, connection: Connection, location: ReceiveLocation, request: Request) -> Message | None:
        """Return the request as it is published, or None if the receive port drops it. Raise MessageFailure."""
        check = None
        if location.authentication != "none":
            check = partial(authenticate, location, login=self._routing.catch_up(connection).login)
        message = read_document(location.pipeline, location.maps, request.interchange, authenticate=check)
        if message is None:
            return None
        context = build_initial_context(location, request.interchange, message.context)
        return message.with_context(add_token(context, request.token))


class RequestBatch(AwaitedBatch):
    """One request of a receive location. If it fails, it is suspended and cannot be resumed (RR-12)."""

    def __init__(
        self,
        host: Host,
        message: Message,
        matcher: Matcher,
        *,
        location: ReceiveLocation,
        request: Request,
        failure: MessageFailure | None,
        response_wait: Condition,
    ) -> None:
        super().__init__(
            host,
            message,
            matcher,
            unit=request.interchange.interchange_id,
            digest=request.digest,
            instance_id=request.instance_id,
            response_wait=response_wait,
            failure=failure,
        )
        self._location = location

    def build_suspended_row(self, row: int, failure: MessageFailure | BadValue) -> SuspendedRow:
        return replace(
            super().build_suspended_row(row, failure),
            service_id=self._location.location_id,
            adapter=self._location.adapter_kind,
            uri=self._location.uri,
            resumable=False,
        )
