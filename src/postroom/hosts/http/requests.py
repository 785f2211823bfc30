"""What a host answers to HTTP requests: 202 when an interchange is in the inbox for good, and otherwise why not."""

from __future__ import annotations

import base64
import binascii
import logging
import math
import uuid
from collections.abc import Iterator, Mapping

from postroom.adapters.http.receive_definition import HttpReceive
from postroom.adapters.http.server import Answer, Request, RequestFailed, refusal
from postroom.agent.identity import interchange_for_key
from postroom.clock import Clock, system_clock
from postroom.errors import BadValue, MissingReference, NotAllowed, Unavailable
from postroom.hosts.http.shared_connections import SharedConnections
from postroom.message import Body, Context
from postroom.messagebox import inbox
from postroom.messagebox.configuration import ReceiveLocation
from postroom.messagebox.streams.throttling import Throttle, ThrottleWatch
from postroom.pipelines.components.party import HASHED, KEY_HEADER, key_hash
from postroom.pipelines.documents.spool import Spool
from postroom.system_properties import HTTP

_log = logging.getLogger(__name__)

#: Credentials are not for the context of a message, which every receiver of it reads.
_CREDENTIALS = {"authorization", "cookie", "proxy-authorization"}
_LONGEST_KEY = 256
_FREE_WITHIN = 10.0
_AWAY_SECONDS, _DISABLED_SECONDS = 5, 30

#: By path.
Locations = Mapping[str, ReceiveLocation]


class HttpRequests:
    """Answers requests for the locations of one listener; called from many threads."""

    def __init__(self, connections: SharedConnections, throttle: ThrottleWatch, *, clock: Clock = system_clock) -> None:
        self._connections = connections
        self._clock = clock
        self._throttle = throttle
        self.locations: Locations = {}

    def __call__(self, request: Request) -> Answer:
        location = self.locations.get(request.path)
        if location is None:
            return refusal(404, f"There is no receive location at {request.path}.")
        if request.method != "POST":
            return refusal(405, f"{request.method} is not taken here.", {"Allow": "POST"})
        if not location.enabled:
            return _later("This receive location is disabled.", _DISABLED_SECONDS)
        if not location.receives_at(self._clock()):
            return _later("This receive location is outside its schedule.", _DISABLED_SECONDS)
        try:
            throttle = self._current_throttle()
            if throttle is not None:
                return _later(f"The MessageBox is busy: {throttle.reason}.", max(1, math.ceil(throttle.delay)))
            return self._accept(location, request)
        except Unavailable:
            return _later("The MessageBox cannot be reached.", _AWAY_SECONDS)
        except NotAllowed:
            return _later("This receive location has moved to another host.", _AWAY_SECONDS)
        except MissingReference:
            return refusal(404, f"There is no receive location at {request.path} any more.")

    def _current_throttle(self) -> Throttle | None:
        if not self._throttle.is_due():
            return self._throttle.last
        with self._connections.one(_FREE_WITHIN) as connection:
            return self._throttle.current(connection)

    def _accept(self, location: ReceiveLocation, request: Request) -> Answer:
        assert isinstance(location.adapter, HttpReceive)
        most = location.adapter.max_bytes
        announced = request.header("content-length")
        if announced is not None and int(announced) > most:
            raise RequestFailed(413, f"The body has {announced} bytes; {most} are taken at most.")
        interchange_id, keyed = _interchange_id(location, request)
        try:
            context = context_of(request)
        except BadValue as error:
            raise RequestFailed(400, error.what) from None
        # A slow client is waited for before it costs a connection, and a transaction.
        body = _spooled(request.body, most)
        with self._connections.one(_FREE_WITHIN) as connection:
            if not (keyed and inbox.is_known(connection, interchange_id)):
                inbox.store_in_inbox(connection, location.location_id, interchange_id, context, body.chunks())
        return Answer(
            status=202,
            content={"interchange_id": str(interchange_id)},
            headers={"Postroom-Interchange-Id": str(interchange_id)},
        )


def context_of(request: Request) -> Context:
    """What is written about a request: its headers, where it came from, and whom it names. Of a key, only the hash."""
    headers = [(name, value) for name, value in request.headers if name not in _CREDENTIALS]
    lines = [f"{name}: {HASHED + key_hash(value) if name == KEY_HEADER else value}" for name, value in headers]
    return (
        Context()
        .write(HTTP.InboundHttpHeaders, "\r\n".join(lines))
        .write(HTTP.RemoteAddress, request.remote)
        .write(HTTP.ContentType, request.header("content-type"))
        .write(HTTP.QueryString, request.query or None)
        .write(HTTP.Username, _user(request.header("authorization")))
    )


def _user(authorization: str | None) -> str | None:
    """Whom a request names by Basic authentication. Nobody has verified that."""
    scheme, _, credentials = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        return base64.b64decode(credentials.strip(), validate=True).decode().partition(":")[0] or None
    except (binascii.Error, UnicodeDecodeError):
        return None


def _interchange_id(location: ReceiveLocation, request: Request) -> tuple[uuid.UUID, bool]:
    """The id, and whether it derives from a key that the sender gave."""
    key = request.header("idempotency-key")
    if key is None:
        return uuid.uuid4(), False
    if not key.strip() or len(key) > _LONGEST_KEY:
        raise RequestFailed(400, f"Idempotency-Key has to have 1 to {_LONGEST_KEY} characters.")
    return interchange_for_key(location.location_id, key), True


def _spooled(pieces: Iterator[bytes], most: int) -> Body:
    """The body, when all of it is here: in memory while it is small, and in a file without a name when it is not."""
    kept = Spool()
    for piece in pieces:
        if kept.size + len(piece) > most:
            raise RequestFailed(413, f"The body has more than {most} bytes.")
        try:
            kept.write(piece)
        except OSError as error:
            _log.error("what is sent to HTTP locations cannot be kept in a file: %s", error)
            raise RequestFailed(507, "There is no room here for the body.") from None
    return kept.body


def _later(why: str, seconds: int) -> Answer:
    return refusal(503, why, {"Retry-After": str(seconds)})
