"""The definition of the HTTP adapter that sends."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field

from postroom.adapters.contract import SendAdapter, SendDefinition
from postroom.adapters.url_logins import has_login
from postroom.clock import Clock, system_clock
from postroom.secrets.references import Secret, find_secret_problems
from postroom.stored_definitions import OptionalPath

#: The value of ``proxy`` that selects HTTP_PROXY, HTTPS_PROXY and NO_PROXY.
FROM_ENVIRONMENT = "environment"

_MAX_TIMEOUT = 3600.0
_MAX_CONNECTIONS = 1000
DEFAULT_CONNECTIONS = 200
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
#: What to write instead of a login in a URL.
_INSTEAD = {
    "url": "; write headers={'Authorization': postroom.secret(env='NAME')} instead",
    "proxy": "; write proxy=postroom.secret(env='NAME') instead, a variable with this URL",
}
# Headers of one connection, headers that say where the body ends, and those that the receive location sets.
_NOT_IN_RESPONSES = {
    "connection",
    "content-length",
    "content-type",
    "date",
    "keep-alive",
    "postroom-interchange-id",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}
# The headers that the adapter sets itself.
_OWN_HEADERS = {
    "connection",
    "content-length",
    "expect",
    "host",
    "idempotency-key",
    "postroom-attempt",
    "postroom-message-id",
    "transfer-encoding",
    "upgrade",
}


class Http(SendDefinition):
    """POSTs the body to a URL: ``adapters.Http("https://example.com/orders", headers={"X-Source": "postroom"})``.

    A 2xx response means that the message was sent. Every other response and every error is a failed attempt, which the
    port retries: a 404 or a 401 is usually fixed on the server. Redirects are not followed. ``timeout`` is the number
    of seconds for the whole exchange, from connecting to the end of the response. It starts again after each mebibyte
    of the body that was sent. ``connections`` is the number of requests that a host instance has open at a time. The
    certificate of an https URL is always verified, against the system's authorities or
    those in ``ca_file``. ``proxy`` is a URL, or "environment"; the environment is ignored otherwise. A header with a
    credential, and a proxy with a login, are ``postroom.secret(...)``, which is read for each message.

    In a two-way port, responses with ``response_statuses`` such as 404 are no failures but the response, like those
    with a 2xx status. The HTTP caller of the request gets the status, and the headers that ``pass_headers`` names.
    """

    transport_type: ClassVar[str] = "HTTP"
    can_be_two_way: ClassVar[bool] = True

    kind: Literal["http"] = "http"
    url: str = Field(kw_only=False)
    headers: Mapping[str, str | Secret] = Field(default_factory=dict)
    timeout: float = 30.0
    connections: int = DEFAULT_CONNECTIONS
    ca_file: OptionalPath = Field(default=None, validate_default=True)
    proxy: str | Secret | None = None
    response_statuses: tuple[int, ...] = ()
    pass_headers: tuple[str, ...] = ()

    def problems(self) -> list[str]:
        found = find_url_problems("url", self.url)
        for name, value in self.headers.items():
            found += _find_header_problems(name, value)
        found += find_secret_problems("header", self.headers) + find_secret_problems("setting", {"proxy": self.proxy})
        found += find_timeout_problems(self.timeout)
        for status in self.response_statuses:
            if not 300 <= status <= 599:
                found.append(f"response_statuses has {status}, but can have numbers from 300 to 599.")
        found += filter(None, map(find_response_header_problem, self.pass_headers))
        if not 1 <= self.connections <= _MAX_CONNECTIONS:
            found.append(f"connections is {self.connections}, but must be between 1 and {_MAX_CONNECTIONS}.")
        if self.ca_file is not None and not self.url.lower().startswith("https:"):
            found.append("ca_file is set, but the URL is not an https URL: nothing would be verified.")
        if isinstance(self.proxy, str) and self.proxy != FROM_ENVIRONMENT:
            found += find_url_problems("proxy", self.proxy)
        return found

    def address(self, home: Path) -> str:
        return self.url

    @property
    def send_limit(self) -> int:
        return self.connections

    def make_sender(self, home: Path, *, clock: Clock = system_clock) -> SendAdapter:
        # Import the dependencies of this adapter only when it is used.
        from postroom.adapters.http.send import HttpSender

        return HttpSender(self, home=home)


def is_header_name(name: str) -> bool:
    """Return True if a header can have this name."""
    return _TOKEN.fullmatch(name) is not None


def is_header_value(value: str) -> bool:
    """Return True if a header can have this value: Latin-1 without line breaks."""
    return _HEADER_VALUE.fullmatch(value) is not None


def find_response_header_problem(name: str) -> str | None:
    """Return why the response to a caller cannot have a header with this name, if it cannot."""
    if not is_header_name(name):
        return f"{name!r} is not a valid header name."
    if name.lower() in _NOT_IN_RESPONSES:
        return f"the header {name} belongs to the connection or is set by the receive location."
    return None


def find_timeout_problems(timeout: float) -> list[str]:
    """Return the problem of a timeout in seconds, if it has one."""
    if 0 < timeout <= _MAX_TIMEOUT:
        return []
    return [f"timeout is {timeout:g} seconds, but must be above 0 and at most {_MAX_TIMEOUT:g}."]


def find_url_problems(what: str, url: str) -> list[str]:
    """Return the problems of a URL to post to. The text of a URL that contains a login is not repeated."""
    # Checked first, because the other problems repeat the URL.
    if has_login(url):
        return [f"{what} contains a user or a password, which would be stored{_INSTEAD.get(what, '')}."]
    if re.search(r"[\x00-\x20\x7f]", url):
        return [f"{what} {url!r} contains a space or a control character."]
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return [f"{what} {url!r} cannot be parsed: {error}."]
    if parts.scheme not in ("http", "https") or not host:
        return [f"{what} {url!r} is not a URL such as https://example.com/orders."]
    if not host.isascii():
        return [f"{what} {url!r}: write the host name in ASCII (xn--…)."]
    if parts.fragment:
        return [f"{what} {url!r} has a fragment ('#…'), which is never sent."]
    return []


def _find_header_problems(name: str, value: str | Secret) -> list[str]:
    if not is_header_name(name):
        return [f"{name!r} is not a valid header name."]
    if name.lower() in _OWN_HEADERS:
        return [f"the header {name} is set by the adapter itself."]
    if isinstance(value, str) and not is_header_value(value):
        return [f"the value of the header {name} contains a line break or another character that is not allowed."]
    return []
