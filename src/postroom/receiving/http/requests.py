"""Handles HTTP requests of a host: stores each interchange in the inbox, and responds with 202 or an error.

The requests of two-way locations are published at once, and their clients wait for the response (two_way_requests.py).
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Mapping

from postroom.adapters.http.receive_definition import HttpReceive
from postroom.agent.idempotency import interchange_for_key, start_request_digest
from postroom.clock import Clock, system_clock
from postroom.errors import BadValue, KeyReused, MissingReference, NotAllowed, Unavailable
from postroom.http.event_loop import WorkerPool
from postroom.http.messages import (
    Request,
    RequestFailed,
    Response,
    build_error_response,
    build_retry_response,
)
from postroom.http.server import identify_client
from postroom.message import FRAGMENT_SIZE, Body, Bytes, Context
from postroom.messagebox.intake import inbox
from postroom.messagebox.intake.inbox import NewInterchange
from postroom.messagebox.throttling.load import ThrottleWatch
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.http.authentication import Authentication, Sender, parse_basic
from postroom.receiving.http.faults import format_fault
from postroom.receiving.http.group_commit import GroupCommit
from postroom.receiving.http.password_turns import PasswordTurns
from postroom.receiving.http.shared_connections import CONNECTION_TIMEOUT, SharedConnections
from postroom.receiving.http.two_way_requests import TwoWayRequests
from postroom.secrets.credentials import HASHED, KEY_HEADER, PasswordCheck, key_hash
from postroom.system_properties import BTS, HTTP
from postroom.temporary_bodies import Spool
from postroom.throttling.states import Throttle
from postroom.values import MAX_PROMOTED_LENGTH

_log = logging.getLogger(__name__)

#: Headers with credentials are not written to the context, which every receiver of the message can read.
_CREDENTIALS = {"authorization", "cookie", "proxy-authorization"}
_MAX_KEY_LENGTH = 256
#: The maximum size of a body that is kept in memory. Many clients send at once, so it is small.
_MAX_IN_MEMORY = 1 << 17
_UNAVAILABLE_RETRY_SECONDS, _DISABLED_RETRY_SECONDS, _PARTY_RETRY_SECONDS = 5, 30, 1

#: Receive locations by path.
Locations = Mapping[str, ReceiveLocation]


class RequestCounts:
    """Counts the requests of a host by location and status, and adds up their seconds. The event loop writes it."""

    def __init__(self) -> None:
        self.by_status: Counter[tuple[str, str]] = Counter()
        self.seconds: Counter[str] = Counter()
        #: The number of requests in progress by location.
        self.in_progress: Counter[str] = Counter()

    def count(self, request: Request, location: str) -> None:
        """Count a request when it ends."""
        started = time.perf_counter()
        self.in_progress[location] += 1

        def end(status: int | None) -> None:
            self.in_progress[location] -= 1
            self.by_status[location, "disconnected" if status is None else str(status)] += 1
            self.seconds[location] += time.perf_counter() - started  # type: ignore[assignment]

        request.end_callbacks.append(end)


class HttpRequests:
    """Handles requests for the locations of one listener.

    It runs on the event loop. What needs a connection to the MessageBox, or much time, runs in a worker thread.
    """

    def __init__(
        self,
        connections: SharedConnections,
        throttle: ThrottleWatch,
        workers: WorkerPool,
        two_way: TwoWayRequests,
        counts: RequestCounts,
        *,
        clock: Clock = system_clock,
    ) -> None:
        self._connections = connections
        self._two_way = two_way
        self._clock = clock
        self._throttle = throttle
        self._workers = workers
        self._group_commit = GroupCommit(connections, workers)
        self._counts = counts
        self._passwords = PasswordCheck()
        self._password_turns = PasswordTurns()
        self._party_requests: Counter[str | None] = Counter()
        self.locations: Locations = {}

    async def __call__(self, request: Request) -> Response | Awaitable[Response]:
        location = self.locations.get(request.path)
        self._counts.count(request, "" if location is None else location.name)
        if location is None:
            return build_error_response(404, f"There is no receive location at {request.path}.")
        if not location.is_two_way:
            return await self._handle(location, request)
        try:
            response = await self._handle(location, request)
        except RequestFailed as failed:
            response = failed.response
        return format_fault(request, response) if isinstance(response, Response) else _format_later(request, response)

    async def _handle(self, location: ReceiveLocation, request: Request) -> Response | Awaitable[Response]:
        if request.method != "POST":
            return build_error_response(405, f"{request.method} is not allowed. Use POST.", {"Allow": "POST"})
        assert isinstance(location.adapter, HttpReceive)
        self._workers.check_capacity()
        self._group_commit.check_capacity()
        sender: Sender | None = None
        if location.adapter.needs_authentication:
            authentication = Authentication(
                certificates=location.adapter.certificates,
                api_keys=location.adapter.api_keys,
                users=location.adapter.users,
                passwords=self._passwords,
            )
            sender = await self._authenticate(authentication, request)
            if sender is None:
                return _reject_unauthenticated(location, request, authentication)
            if not self._count_request(request, sender, location.adapter.party_requests):
                return build_error_response(
                    429, "There are too many requests of this party.", {"Retry-After": str(_PARTY_RETRY_SECONDS)}
                )
        elif request.certificate is not None:
            sender = Sender(account=request.certificate.account, party=None)
        if not location.enabled:
            return build_retry_response("This receive location is disabled.", _DISABLED_RETRY_SECONDS)
        if not location.receives_at(self._clock()):
            return build_retry_response("This receive location is outside its schedule.", _DISABLED_RETRY_SECONDS)
        try:
            throttle = await self._current_throttle(location.location_id)
            if throttle is not None:
                delay = max(1, math.ceil(throttle.delay))
                return build_retry_response(f"The MessageBox is busy: {throttle.reason}.", delay)
            return await self._accept(location, location.adapter.max_bytes, request, sender)
        except Unavailable:
            return build_retry_response("The MessageBox is unavailable.", _UNAVAILABLE_RETRY_SECONDS)
        except NotAllowed:
            return build_retry_response("This receive location has moved to another host.", _UNAVAILABLE_RETRY_SECONDS)
        except KeyReused as error:
            return build_error_response(422, f"{error.what} {error.hint}")
        except MissingReference:
            return build_error_response(404, f"The receive location at {request.path} was deleted.")

    async def _authenticate(self, authentication: Authentication, request: Request) -> Sender | None:
        if (sender := authentication.find_known(request)) is not None or not authentication.has_password(request):
            return sender
        client = identify_client(request.remote)
        async with self._password_turns.take_turn(client):
            sender = await self._workers.run(authentication.verify_password, request)
            self._password_turns.record_result(client, is_correct=sender is not None)
            return sender

    def _count_request(self, request: Request, sender: Sender, limit: int) -> bool:
        """Count a request until its end. Return False if the party has too many in progress."""
        if self._party_requests[sender.party] >= limit:
            return False

        def uncount(_: int | None) -> None:
            self._party_requests[sender.party] -= 1
            if not self._party_requests[sender.party]:
                del self._party_requests[sender.party]

        self._party_requests[sender.party] += 1
        request.end_callbacks.append(uncount)
        return True

    async def _current_throttle(self, location_id: uuid.UUID) -> Throttle | None:
        if not self._throttle.is_due():
            return self._throttle.get_last(location_id)
        return await self._workers.run(self._read_throttle, location_id)

    def _read_throttle(self, location_id: uuid.UUID) -> Throttle | None:
        with self._connections.borrow(CONNECTION_TIMEOUT) as connection:
            return self._throttle.current(connection, location_id)

    async def _accept(
        self, location: ReceiveLocation, max_bytes: int, request: Request, sender: Sender | None
    ) -> Response | Awaitable[Response]:
        """Return the 202 of a stored interchange, or the response that the client of a two-way location waits for."""
        announced = request.header("content-length")
        if announced is not None and int(announced) > max_bytes:
            raise RequestFailed(413, f"The body has {announced} bytes; the maximum is {max_bytes}.")
        interchange_id, has_key = _interchange_id(location, request, sender)
        digest = start_request_digest(request.header("content-type"), request.query) if has_key else None
        try:
            context = build_request_context(request, sender)
        except BadValue as error:
            raise RequestFailed(400, error.what) from None
        # Read the whole body first: a slow client must not block a thread, a connection and a transaction.
        body = await read_body(request, max_bytes, digest, self._workers)
        key_digest = None if digest is None else digest.digest()
        if location.is_two_way:
            publish = self._two_way.publish
            caller = await self._workers.run(publish, location, interchange_id, context, body, key_digest)
            return self._two_way.wait(caller)
        if isinstance(body, Bytes) and body.size <= FRAGMENT_SIZE:
            new = NewInterchange(interchange_id=interchange_id, context=context, body=body.data, digest=key_digest)
            await self._group_commit.store(location.location_id, new)
        else:
            await self._workers.run(self._store, location, interchange_id, context, body, key_digest)
        return Response(
            status=202,
            content={"interchange_id": str(interchange_id)},
            headers={"Postroom-Interchange-Id": str(interchange_id)},
        )

    def _store(
        self,
        location: ReceiveLocation,
        interchange_id: uuid.UUID,
        context: Context,
        body: Body,
        digest: bytes | None,
    ) -> None:
        """Store an interchange, unless the same request was stored before. Raise KeyReused if its key came with another
        body."""
        with self._connections.borrow(CONNECTION_TIMEOUT) as connection:
            if digest is not None and inbox.check_if_known(connection, interchange_id, digest=digest):
                return
            is_stored = inbox.store_in_inbox(
                connection, location.location_id, interchange_id, context, body.chunks(), digest=digest
            )
            if not is_stored:  # another request with the same key was faster
                inbox.check_if_known(connection, interchange_id, digest=digest)


async def _format_later(request: Request, awaited: Awaitable[Response]) -> Response:
    return format_fault(request, await awaited)


def build_request_context(request: Request, sender: Sender | None = None) -> Context:
    """Return a context with the headers, the remote address, the user name and the authenticated sender. API keys are
    hashed."""
    headers = [(name, value) for name, value in request.headers if name not in _CREDENTIALS]
    lines = [f"{name}: {HASHED + key_hash(value) if name == KEY_HEADER else value}" for name, value in headers]
    given = parse_basic(request.header("authorization"))
    context = (
        Context()
        .write(HTTP.InboundHttpHeaders, "\r\n".join(lines))
        .write(HTTP.RemoteAddress, request.remote)
        .write(HTTP.ContentType, request.header("content-type"))
        .write(HTTP.QueryString, request.query or None)
        .write(HTTP.Username, None if given is None else given[0])
    )
    if sender is None:
        return context
    # The MessageBox ignores both, unless the host is trusted.
    context = context.write(BTS.OriginatorSID, sender.account[:MAX_PROMOTED_LENGTH])
    return context if sender.party is None else context.promote(BTS.OriginatorPID, sender.party)


def _reject_unauthenticated(location: ReceiveLocation, request: Request, authentication: Authentication) -> Response:
    _log.info("%s: a request from %s has no valid credentials", location.name, request.remote)
    error = f"This receive location needs {authentication.accepted}."
    return build_error_response(401, error, {"WWW-Authenticate": authentication.challenge})


def _interchange_id(location: ReceiveLocation, request: Request, sender: Sender | None) -> tuple[uuid.UUID, bool]:
    """Return the interchange id, and True if it is derived from an idempotency key."""
    key = request.header("idempotency-key")
    if key is None:
        return uuid.uuid4(), False
    if not key.strip() or len(key) > _MAX_KEY_LENGTH:
        raise RequestFailed(400, f"Idempotency-Key must have 1 to {_MAX_KEY_LENGTH} characters.")
    return interchange_for_key(location.location_id, key, sender=_identify_sender(request, sender)), True


def _identify_sender(request: Request, sender: Sender | None) -> str:
    """Return what identifies the sender of a key: its party, or else everything in the request that names it. The
    receive pipeline may resolve the party later, by the API key. Senders without credentials are one sender."""
    if sender is not None and sender.party is not None:
        return json.dumps({"party": sender.party})
    given = parse_basic(request.header("authorization"))
    found = {
        "account": None if sender is None else sender.account,
        "api_keys": [key_hash(value.strip()) for name, value in request.headers if name == KEY_HEADER],
        "user": None if given is None else given[0],
    }
    return json.dumps(found) if any(found.values()) else ""


async def read_body(request: Request, max_bytes: int, digest: hashlib.blake2b | None, workers: WorkerPool) -> Body:
    """Read a whole body: into memory if it is small, otherwise into a temporary file. Add it to the digest."""
    spool = Spool(max_in_memory=_MAX_IN_MEMORY)
    async for piece in request.body:
        if spool.size + len(piece) > max_bytes:
            raise RequestFailed(413, f"The body has more than {max_bytes} bytes.")
        if digest is not None:
            digest.update(piece)
        try:
            if spool.size + len(piece) <= _MAX_IN_MEMORY:
                spool.write(piece)
            else:
                await workers.run(spool.write, piece)
        except OSError as error:
            _log.error("the body of an HTTP request cannot be written to a temporary file: %s", error)
            raise RequestFailed(507, "There is not enough disk space for the body.") from None
    return spool.body
