"""Sends messages by HTTP POST."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import HTTPError, ProtocolError

from postroom.adapters.contract import Attempt, get_body
from postroom.adapters.http.definition import FROM_ENVIRONMENT, Http, is_header_value
from postroom.adapters.http.exchange import POOL_CLASSES, Deadline, RequestBody
from postroom.errors import DeliveryFailure
from postroom.message import Message, Part

# Maximum number of bytes that are read of a response, to reuse the connection and to report why a message failed.
_RESPONSE_LIMIT = 65_536
# Seconds to wait for the body of a 2xx response. The status has confirmed the message already.
_CONFIRMED_SECONDS = 1.0
_REASON_LENGTH = 500


class HttpSender:
    """POSTs the body to the URL of its port."""

    def __init__(self, definition: Http, *, home: Path) -> None:
        self._definition = definition
        self._client = HttpClient(
            timeout=definition.timeout,
            connections=definition.connections,
            headers=definition.headers,
            ca_file=None if definition.ca_file is None else str(home / definition.ca_file),
            proxy=_choose_proxy(definition),
        )

    def open(self) -> None:
        self._client.open()

    def send(self, message: Message, attempt: Attempt) -> None:
        self._client.post(self._definition.url, message, attempt)

    def close(self) -> None:
        self._client.close()


class HttpClient:
    """POSTs bodies to URLs over pooled connections.

    ``timeout`` is the number of seconds for a whole exchange. It starts again after each mebibyte of the body that was
    sent. ``Idempotency-Key`` identifies a repeated attempt: one key for one message at one send port.
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
        self._timeout = timeout
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
            pool = urllib3.PoolManager(**self._settings)
        else:
            pool = urllib3.ProxyManager(self._proxy, **self._settings)
        pool.pool_classes_by_scheme = POOL_CLASSES
        self._pool = pool

    def post(self, url: str, message: Message, attempt: Attempt) -> None:
        """Return when the server has confirmed the message. Raise DeliveryFailure otherwise."""
        assert self._pool is not None, "the adapter has not been opened"
        deadline = Deadline(self._timeout)
        body = RequestBody(get_body(message), deadline)
        try:
            response = self._pool.urlopen(
                "POST",
                url,
                body=body,
                headers=self._headers(message, body.part, attempt),
                # The port decides about retries. A redirect would send the message to a URL that is not declared.
                retries=False,
                redirect=False,
                preload_content=False,
            )
        except (HTTPError, OSError) as error:
            what = f"The message could not be sent to {url}."
            raise DeliveryFailure(what, why=_describe_error(error)) from error
        is_confirmed = 200 <= response.status < 300
        if is_confirmed:
            deadline.shorten(_CONFIRMED_SECONDS)
        text = _read_response(response)
        if not is_confirmed:
            raise DeliveryFailure(
                f"{url} responded with {response.status} {response.reason or ''}".rstrip() + ".",
                why=text,
                hint=_suggest_fix(response),
            )
        if not body.is_sent:
            raise DeliveryFailure(f"{url} responded with {response.status} before it had read the whole message.")

    def close(self) -> None:
        if self._pool is not None:
            self._pool.clear()
            self._pool = None

    def _headers(self, message: Message, part: Part, attempt: Attempt) -> urllib3.HTTPHeaderDict:
        headers = urllib3.HTTPHeaderDict({"User-Agent": "postroom", "Content-Type": _content_type(part)})
        for name, value in self._extra_headers.items():
            headers[name] = value
        headers["Content-Length"] = str(part.body.size)
        # A resumed instance may have another body, and then it has another message.
        headers["Idempotency-Key"] = f"{attempt.instance_id}.{message.message_id}"
        headers["Postroom-Message-Id"] = str(message.message_id)
        headers["Postroom-Attempt"] = str(attempt.number)
        return headers


def _choose_proxy(definition: Http) -> str | None:
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
    # The type of a part is not trusted: a line break in it must not become a header.
    return content_type if is_header_value(content_type) else "application/octet-stream"


def _read_response(response: urllib3.BaseHTTPResponse) -> str:
    """Return the start of the response in one line. The status is already known, so errors are ignored."""
    try:
        data = response.read(_RESPONSE_LIMIT)
        if response.read(1):
            response.close()
    except (HTTPError, OSError):
        data = b""
        response.close()
    finally:
        response.release_conn()
    return _to_one_line(data.decode(errors="replace"))


def _suggest_fix(response: urllib3.BaseHTTPResponse) -> str:
    location = response.headers.get("Location")
    if 300 <= response.status < 400 and location:
        return f"It redirects to {location!r}. Redirects are not followed; declare this URL if it is right."
    return ""


def _describe_error(error: Exception) -> str:
    if isinstance(error, ProtocolError) and isinstance(error.args[-1], Exception):
        return _to_one_line(f"{type(error.args[-1]).__name__}: {error.args[-1]}")
    # urllib3 writes the connection object before the description of the error.
    return _to_one_line(re.sub(r"^<?[\w.]*Connection(Pool)?\([^)]*\)(?:[^:]*>)?: ", "", str(error)))


def _to_one_line(text: str) -> str:
    words = re.sub(r"[\x00-\x20\x7f-\x9f]+", " ", text).strip()
    return words if len(words) <= _REASON_LENGTH else f"{words[:_REASON_LENGTH]}…"
