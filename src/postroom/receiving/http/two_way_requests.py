"""Two-way HTTP: publishes a request in a worker thread, and lets its client wait for the response on the event loop."""

from __future__ import annotations

import asyncio
import uuid

from postroom.adapters.http.definition import is_header_value
from postroom.agent.streaming.interchange import Interchange
from postroom.errors import AuthenticationFailure, BadValue, MessageFailure, RoutingFailure
from postroom.http.messages import RequestFailed, Response, build_error_response
from postroom.message import Body, Bytes, Context
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.http.shared_connections import CONNECTION_TIMEOUT, SharedConnections
from postroom.two_way.callers import Answer, Caller, MissingResponse, RequestPublisher

_LOST = "Look for a suspended response by the interchange id, or send the request with a new key."
_MISSING = {
    MissingResponse.EXPIRED: (504, "The request was received, but its response did not come in time."),
    MissingResponse.REFUSED: (502, "The request was received, but it could not be answered."),
    MissingResponse.STOPPING: (503, "The request was received, but the host stopped before its response came."),
    MissingResponse.LOST: (
        409,
        f"A request with this key was received before, and its response is not available. {_LOST}",
    ),
}
#: What a client with an idempotency key can do after these answers.
_REPEATABLE = {MissingResponse.EXPIRED, MissingResponse.STOPPING}
_HINT = " Repeat the request with its key to wait again."


class TwoWayRequests:
    """The requests of two-way locations. Waiting clients hold no thread and no connection to the MessageBox."""

    def __init__(self, connections: SharedConnections, publisher: RequestPublisher) -> None:
        self._connections = connections
        self._publisher = publisher

    def publish(
        self, location: ReceiveLocation, interchange_id: uuid.UUID, context: Context, body: Body, digest: bytes | None
    ) -> Caller:
        """Publish a request in a worker thread. Raise RequestFailed if it fails."""
        interchange = Interchange(interchange_id=interchange_id, body=body, context=context)
        timeout = location.response_timeout
        try:
            with self._connections.borrow(CONNECTION_TIMEOUT) as connection:
                return self._publisher.publish(connection, location, interchange, timeout=timeout, digest=digest)
        except (MessageFailure, BadValue) as failure:
            raise RequestFailed(_get_status(failure), failure.what, _build_headers(interchange_id)) from None

    async def wait(self, caller: Caller) -> Response:
        """Return the response to a request. The server cancels this if the client disconnects (RR-09)."""
        try:
            # Another connection may wait for the same response, so a cancellation must not reach the future.
            answer = await asyncio.shield(asyncio.wrap_future(caller.future))
        except asyncio.CancelledError:
            self._publisher.callers.cancel(caller)
            raise
        return _build_response(caller, answer)


def _build_response(caller: Caller, answer: Answer) -> Response:
    headers = {**answer.head.headers, **_build_headers(caller.unit)}
    if answer.missing is not None:
        status, text = _MISSING[answer.missing]
        can_repeat = caller.has_key and answer.missing in _REPEATABLE
        return build_error_response(status, text + _HINT if can_repeat else text, headers)
    if is_header_value(answer.content_type) and answer.content_type:
        headers["Content-Type"] = answer.content_type
    body = answer.body.data if isinstance(answer.body, Bytes) else answer.body or b""
    return Response(status=answer.head.status, body=body, headers=headers)


def _build_headers(interchange_id: uuid.UUID) -> dict[str, str]:
    return {"Postroom-Interchange-Id": str(interchange_id)}


def _get_status(failure: MessageFailure | BadValue) -> int:
    if isinstance(failure, AuthenticationFailure):
        return 403
    return 502 if isinstance(failure, RoutingFailure) else 400
