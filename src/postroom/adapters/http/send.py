"""Sends messages by HTTP POST."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import HTTPError, ProtocolError

from postroom.adapters.contract import Attempt, body_of
from postroom.adapters.http.definition import FROM_ENVIRONMENT, Http, is_header_value
from postroom.errors import DeliveryFailure
from postroom.message import Message, Part

# As much of an answer as is read: to keep the connection, and to say why a message was not taken.
_ANSWER_LIMIT = 65_536
_REASON_LENGTH = 500


class HttpSender:
    """POSTs the body to the one URL of its port."""

    def __init__(self, definition: Http, *, home: Path) -> None:
        self._definition = definition
        self._client = HttpClient(
            timeout=definition.timeout,
            connections=definition.connections,
            headers=definition.headers,
            ca_file=None if definition.ca_file is None else str(home / definition.ca_file),
            proxy=_proxy_for(definition),
        )

    def open(self) -> None:
        self._client.open()

    def send(self, message: Message, attempt: Attempt) -> None:
        self._client.post(self._definition.url, message, attempt)

    def close(self) -> None:
        self._client.close()


class HttpClient:
    """POSTs bodies to URLs, and keeps connections to where they are.

    A receiver knows a repeat by ``Idempotency-Key``: one key for one message at one send port.
    """

    def __init__(
        self,
        *,
        timeout: float,
        connections: int,
        headers: Mapping[str, str] | None = None,
        ca_file: str | None = None,
        proxy: str | None = None,
    ) -> None:
        self._extra_headers = dict(headers or {})
        self._proxy = proxy
        self._settings: dict[str, Any] = {
            "maxsize": connections,
            "timeout": urllib3.Timeout(connect=timeout, read=timeout),
            "cert_reqs": "CERT_REQUIRED",
            "ca_certs": ca_file,
        }
        self._pool: urllib3.PoolManager | None = None

    def open(self) -> None:
        if self._proxy is None:
            self._pool = urllib3.PoolManager(**self._settings)
        else:
            self._pool = urllib3.ProxyManager(self._proxy, **self._settings)

    def post(self, url: str, message: Message, attempt: Attempt) -> None:
        """Returns when the other side has answered that it has it; DeliveryFailure otherwise."""
        assert self._pool is not None, "the adapter has not been opened"
        body = _WholeBody(body_of(message))
        try:
            answer = self._pool.urlopen(
                "POST",
                url,
                body=iter(body),
                headers=self._headers(message, body.part, attempt),
                # The port's policy decides about repeats; a redirect would send the message where nobody declared it.
                retries=False,
                redirect=False,
                preload_content=False,
            )
        except (HTTPError, OSError) as error:
            what = f"The message could not be sent to {url}."
            raise DeliveryFailure(what, why=_in_words(error)) from error
        text = _read(answer)
        if not 200 <= answer.status < 300:
            raise DeliveryFailure(
                f"{url} answered {answer.status} {answer.reason or ''}".rstrip() + ".",
                why=text,
                hint=_hint(answer),
            )
        if not body.taken:
            raise DeliveryFailure(f"{url} answered {answer.status} before it had taken the whole message.")

    def close(self) -> None:
        if self._pool is not None:
            self._pool.clear()
            self._pool = None

    def _headers(self, message: Message, part: Part, attempt: Attempt) -> urllib3.HTTPHeaderDict:
        headers = urllib3.HTTPHeaderDict({"User-Agent": "postroom", "Content-Type": _content_type(part)})
        for name, value in self._extra_headers.items():
            headers[name] = value
        headers["Content-Length"] = str(part.body.size)
        headers["Idempotency-Key"] = str(attempt.instance_id)
        headers["Postroom-Message-Id"] = str(message.message_id)
        headers["Postroom-Attempt"] = str(attempt.number)
        return headers


class _WholeBody:
    """The body as it goes over the wire: exactly the announced number of bytes, and whether all of it was taken."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.taken = False

    def __iter__(self) -> Iterator[bytes]:
        rest = self.part.body.size
        for chunk in self.part.body.chunks():
            rest -= len(chunk)
            if rest < 0:
                break
            yield chunk
        if rest:
            # More or fewer bytes than announced would shift whatever comes next on the connection.
            raise DeliveryFailure(
                f"Part {self.part.name!r} gave another number of bytes than the {self.part.body.size} it should have.",
                hint="Its content was changed or cut short while it was read.",
            )
        self.taken = True


def _proxy_for(definition: Http) -> str | None:
    if definition.proxy != FROM_ENVIRONMENT:
        return definition.proxy
    target = urlsplit(definition.url)
    if proxy_bypass(target.netloc):
        return None
    proxies = getproxies()
    return proxies.get(target.scheme) or proxies.get("all")


def _content_type(part: Part) -> str:
    content_type = part.content_type
    if part.charset and "charset" not in content_type.lower():
        content_type = f"{content_type}; charset={part.charset}"
    # A part may come from anywhere; a line break in its type must not become a header of its own.
    return content_type if is_header_value(content_type) else "application/octet-stream"


def _read(answer: urllib3.BaseHTTPResponse) -> str:
    """The beginning of the answer, in one line. The status is known by now, so nothing here can fail the attempt."""
    try:
        data = answer.read(_ANSWER_LIMIT)
        if answer.read(1):
            answer.close()
    except (HTTPError, OSError):
        data = b""
        answer.close()
    finally:
        answer.release_conn()
    return _one_line(data.decode(errors="replace"))


def _hint(answer: urllib3.BaseHTTPResponse) -> str:
    location = answer.headers.get("Location")
    if 300 <= answer.status < 400 and location:
        return f"It wants the message at {location!r}; redirects are not followed, so declare that URL if it is right."
    return ""


def _in_words(error: Exception) -> str:
    if isinstance(error, ProtocolError) and isinstance(error.args[-1], Exception):
        return _one_line(f"{type(error.args[-1]).__name__}: {error.args[-1]}")
    # urllib3 puts the object of the connection in front of what happened.
    return _one_line(re.sub(r"^<?[\w.]*Connection(Pool)?\([^)]*\)(?:[^:]*>)?: ", "", str(error)))


def _one_line(text: str) -> str:
    words = re.sub(r"[\x00-\x20\x7f-\x9f]+", " ", text).strip()
    return words if len(words) <= _REASON_LENGTH else f"{words[:_REASON_LENGTH]}…"
