"""The HTTP adapter as a user declares it; it sends only."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field

from postroom.adapters.contract import SendAdapter
from postroom.adapters.definition import AdapterDefinition
from postroom.clock import Clock, system_clock

#: The value of ``proxy`` that means: whatever HTTP_PROXY, HTTPS_PROXY and NO_PROXY say.
FROM_ENVIRONMENT = "environment"

_LONGEST_TIMEOUT = 3600.0
_MOST_CONNECTIONS = 1000
DEFAULT_CONNECTIONS = 20
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
# What the adapter says itself about each message and about the connection.
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


class Http(AdapterDefinition):
    """POSTs the body to a URL: ``adapters.Http("https://example.com/orders", headers={"X-Source": "postroom"})``.

    Any 2xx answer means sent. Everything else, other answers included, is a failed attempt, which the port's
    policy tries again: a 404 or a 401 is more often mended on the other side than not. Redirects are not followed.
    ``timeout`` is for each step: to connect, and every wait for the other side to take or to give bytes. The
    certificate of an https URL is always verified, against the system's authorities or those in ``ca_file``. ``proxy``
    is a URL, or "environment"; without it the environment is not looked at.
    """

    transport_type: ClassVar[str] = "HTTP"

    kind: Literal["http"] = "http"
    url: str
    headers: Mapping[str, str] = Field(default_factory=dict)
    timeout: float
    connections: int
    ca_file: str | None
    proxy: str | None

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        connections: int = DEFAULT_CONNECTIONS,
        ca_file: str | os.PathLike[str] | None = None,
        proxy: str | None = None,
        kind: Literal["http"] = "http",
    ) -> None:
        super().__init__(
            url=url,
            headers={} if headers is None else headers,
            timeout=timeout,
            connections=connections,
            ca_file=os.fspath(ca_file) if isinstance(ca_file, os.PathLike) else ca_file,
            proxy=proxy,
            kind=kind,
        )

    def problems(self) -> list[str]:
        found = url_problems("url", self.url, credentials=False)
        for name, value in self.headers.items():
            found += _header_problems(name, value)
        found += timeout_problems(self.timeout)
        if not 1 <= self.connections <= _MOST_CONNECTIONS:
            found.append(f"connections is {self.connections}, but must be between 1 and {_MOST_CONNECTIONS}.")
        if self.ca_file is not None and not self.url.lower().startswith("https:"):
            found.append("ca_file is given, but the URL is not an https one: nothing would be verified.")
        if self.proxy is not None and self.proxy != FROM_ENVIRONMENT:
            found += url_problems("proxy", self.proxy, credentials=True)
        return found

    def address(self, home: Path) -> str:
        return self.url

    def make_sender(self, home: Path, *, clock: Clock = system_clock) -> SendAdapter:
        # What only this adapter needs is imported only for it.
        from postroom.adapters.http.send import HttpSender

        return HttpSender(self, home=home)


def is_header_value(value: str) -> bool:
    """Whether a header can carry this: no line breaks, nothing outside of Latin-1."""
    return _HEADER_VALUE.fullmatch(value) is not None


def timeout_problems(timeout: float) -> list[str]:
    if 0 < timeout <= _LONGEST_TIMEOUT:
        return []
    return [f"timeout is {timeout:g} seconds, but must be above 0 and at most {_LONGEST_TIMEOUT:g}."]


def url_problems(what: str, url: str, *, credentials: bool) -> list[str]:
    """What is wrong with a URL that is to be posted to; nothing of one that has a login in it is repeated."""
    # First, because the others repeat the URL.
    if not credentials and re.match(r"[^/?#]*//[^/?#]*@", url):
        return [f"{what} has a user or a password in it, where every listing would show it; send a header instead."]
    if re.search(r"[\x00-\x20\x7f]", url):
        return [f"{what} {url!r} has a space or a control character in it."]
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return [f"{what} {url!r} cannot be read: {error}."]
    if parts.scheme not in ("http", "https") or not host:
        return [f"{what} {url!r} is not a URL such as https://example.com/orders."]
    if not host.isascii():
        return [f"{what} {url!r}: write the host in its ASCII form (xn--…)."]
    if parts.fragment:
        return [f"{what} {url!r} has a fragment ('#…'), which is never sent."]
    return []


def _header_problems(name: str, value: str) -> list[str]:
    if not _TOKEN.fullmatch(name):
        return [f"{name!r} is not the name of a header."]
    if name.lower() in _OWN_HEADERS:
        return [f"the header {name} is set by the adapter itself."]
    if not is_header_value(value):
        return [f"the header {name} has a line break or another character in it that a header may not have."]
    return []
