"""Sends messages by HTTP POST."""

from __future__ import annotations

import re
import ssl
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import HTTPError, ProtocolError
from urllib3.util import make_headers, parse_url

from postroom.adapters.contract import Attempt, ReceivedResponse, get_body
from postroom.adapters.http.definition import FROM_ENVIRONMENT, Http, is_header_value
from postroom.adapters.http.exchange import POOL_CLASSES, Deadline, RequestBody, SentRequest
from postroom.adapters.http.response_head import format_headers
from postroom.adapters.url_logins import remove_login
from postroom.errors import DeliveryFailure, DeliveryRefused, SecretUnavailable
from postroom.message import Bytes, Context, Message, Part, format_content_type
from postroom.secrets.references import Secret, read_value
from postroom.system_properties import HTTP

# Maximum number of bytes that are read of a response, to reuse the connection and to report why a message failed.
_RESPONSE_LIMIT = 65_536
# Seconds to wait for the body of a 2xx response. The status has confirmed the message already.
_CONFIRMED_SECONDS = 1.0
_REASON_LENGTH = 500
# Maximum number of bytes of a response that is published.
_MAX_SOLICITED = 64 << 20
# Headers with credentials are not written to the context, which every receiver of the response can read.
_CREDENTIALS = {"set-cookie", "authorization", "proxy-authenticate", "www-authenticate"}


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
            response_statuses=definition.response_statuses,
            pass_headers=definition.pass_headers,
        )

    def open(self) -> None:
        self._client.open()

    def begin_send(self, message: Message, attempt: Attempt, *, solicits: bool) -> Exchange:
        """Send the message, and return before the server has answered."""
        return self._client.begin(self._definition.url, message, attempt, solicits=solicits)

    def send(self, message: Message, attempt: Attempt) -> None:
        self.begin_send(message, attempt, solicits=False).finish()

    def solicit(self, message: Message, attempt: Attempt) -> ReceivedResponse:
        response = self.begin_send(message, attempt, solicits=True).finish()
        assert response is not None
        return response

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
        headers: Mapping[str, str | Secret] | None = None,
        ca_file: str | None = None,
        proxy: str | Secret | None = None,
        response_statuses: Collection[int] = (),
        pass_headers: Sequence[str] = (),
    ) -> None:
        self.response_statuses = response_statuses
        self._pass_headers = pass_headers
        self._timeout = timeout
        self._extra_headers = dict(headers or {})
        self._proxy = proxy
        self._settings: dict[str, Any] = {
            "maxsize": connections,
            "timeout": urllib3.Timeout(connect=timeout, read=timeout),
            "cert_reqs": "CERT_REQUIRED",
            "ca_certs": ca_file,
        }
        self._is_open = False
        self._changing = threading.Lock()
        self._pool: urllib3.PoolManager | None = None
        self._pool_proxy: str | None = None

    def open(self) -> None:
        self._is_open = True

    def _get_pool(self) -> urllib3.PoolManager:
        """Return the connections. They are replaced when the URL of the proxy is a secret that has changed."""
        assert self._is_open, "the adapter has not been opened"
        proxy = None if self._proxy is None else read_value(self._proxy)
        with self._changing:
            if self._pool is None or proxy != self._pool_proxy:
                self._pool, self._pool_proxy = self._make_pool(proxy), proxy
            return self._pool

    def _make_pool(self, proxy: str | None) -> urllib3.PoolManager:
        if proxy is None:
            pool = urllib3.PoolManager(**self._settings)
        else:
            address, login = _split_login(proxy)
            pool = urllib3.ProxyManager(address, proxy_headers=login, **self._settings)
        pool.pool_classes_by_scheme = POOL_CLASSES
        return pool

    def begin(self, url: str, message: Message, attempt: Attempt, *, solicits: bool) -> Exchange:
        """Send the message. Return before the server has answered. Raise DeliveryFailure if it cannot be sent."""
        pool = self._get_pool()
        body = RequestBody(get_body(message), Deadline(self._timeout))
        try:
            sent = pool.urlopen(
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
            raise _build_failure(url, _describe_error(error)) from error
        # The connections of POOL_CLASSES return what is needed to read the response later.
        return Exchange(self, url, cast(SentRequest, sent), body, solicits=solicits)

    def describe_timeout(self) -> str:
        return f"Read timed out. (read timeout={self._timeout})"

    def build_response_context(self, response: urllib3.BaseHTTPResponse) -> Context:
        lines = [f"{name}: {value}" for name, value in response.headers.items() if name.lower() not in _CREDENTIALS]
        passed = {name: value for name in self._pass_headers if (value := response.headers.get(name)) is not None}
        return (
            Context()
            .write(HTTP.ResponseStatusCode, response.status)
            .write(HTTP.ContentType, response.headers.get("Content-Type"))
            .write(HTTP.InboundHttpHeaders, "\r\n".join(lines) or None)
            .write(HTTP.UserHttpHeaders, format_headers(passed) or None)
        )

    def close(self) -> None:
        self._is_open = False
        if self._pool is not None:
            self._pool.clear()
            self._pool = None

    def redact(self, text: str) -> str:
        """Return a text of the server without the secrets in the headers of the request, which it may repeat."""
        for value in self._extra_headers.values():
            if isinstance(value, Secret):
                with suppress(SecretUnavailable):
                    text = text.replace(value.read().removeprefix(value.prefix), "…")
        return text

    def _headers(self, message: Message, part: Part, attempt: Attempt) -> urllib3.HTTPHeaderDict:
        headers = urllib3.HTTPHeaderDict({"User-Agent": "postroom", "Content-Type": _content_type(part)})
        for name, value in self._extra_headers.items():
            headers[name] = _read_header(name, value)
        headers["Content-Length"] = str(part.body.size)
        # A resumed instance may have another body, and then it has another message.
        headers["Idempotency-Key"] = f"{attempt.instance_id}.{message.message_id}"
        headers["Postroom-Message-Id"] = str(message.message_id)
        headers["Postroom-Attempt"] = str(attempt.number)
        if attempt.sequence_number is not None:
            headers["Postroom-Sequence-Number"] = str(attempt.sequence_number)
        return headers


class Exchange:
    """A message that was sent, and whose response has not been read. ``sent`` receives the response without a thread.

    ``solicits``: the response has to be complete, and is returned. Otherwise its status confirms the message.
    """

    def __init__(self, client: HttpClient, url: str, sent: SentRequest, body: RequestBody, *, solicits: bool) -> None:
        self.sent = sent
        self._client = client
        self._url = url
        self._body = body
        self._solicits = solicits
        if not solicits:
            sent.confirmed_seconds = _CONFIRMED_SECONDS

    def finish(self) -> ReceivedResponse | None:
        """Read the response. Raise DeliveryFailure if the server has not confirmed the message, or without the complete
        response that is solicited, and DeliveryRefused if this is too large."""
        response = self._read_head()
        received = None
        if self._solicits:
            received = ReceivedResponse(
                body=Bytes(self._read_body(response)), context=self._client.build_response_context(response)
            )
        else:
            self._body.deadline.shorten(_CONFIRMED_SECONDS)
            _read_response(response)
        if not self._body.is_sent:
            raise DeliveryFailure(f"{self._url} responded with {response.status} before it had read the whole message.")
        return received

    def _read_head(self) -> urllib3.BaseHTTPResponse:
        """Return the response, whose body is not read yet: one with a 2xx status, or another one that is solicited."""
        try:
            response = self.sent.get_response()
        except TimeoutError as error:
            raise _build_failure(self._url, self._client.describe_timeout()) from error
        except (HTTPError, ssl.SSLError) as error:
            raise _build_failure(self._url, _describe_error(error)) from error
        except (HTTPException, OSError) as error:
            aborted = ProtocolError("Connection aborted.", error)
            raise _build_failure(self._url, _describe_error(aborted)) from error
        statuses = self._client.response_statuses if self._solicits else ()
        if not 200 <= response.status < 300 and response.status not in statuses:
            redact = self._client.redact
            raise DeliveryFailure(
                f"{self._url} responded with {response.status} {redact(response.reason or '')}".rstrip() + ".",
                why=_read_response(response, redact),
                hint=redact(_suggest_fix(response)),
            )
        return response

    def _read_body(self, response: urllib3.BaseHTTPResponse) -> bytes:
        try:
            data = response.read(_MAX_SOLICITED + 1)
        except (HTTPError, OSError) as error:
            response.close()
            raise DeliveryFailure(f"The response of {self._url} is incomplete.", why=_describe_error(error)) from error
        finally:
            response.release_conn()
        if len(data) > _MAX_SOLICITED:
            response.close()
            raise DeliveryRefused(
                f"The response of {self._url} has more than {_MAX_SOLICITED:,} bytes.",
                hint="Let the receiver return less, and terminate the instance.",
            )
        return data


def _build_failure(url: str, why: str) -> DeliveryFailure:
    return DeliveryFailure(f"The message could not be sent to {url}.", why=why)


def _read_header(name: str, value: str | Secret) -> str:
    text = read_value(value)
    if not is_header_value(text):
        raise SecretUnavailable(f"The secret of the header {name} contains a line break or another invalid character.")
    return text


def _split_login(proxy: str) -> tuple[str, Mapping[str, str]]:
    """Return the URL of a proxy without its login, and the header of the login. An error does not repeat the URL."""
    with suppress(HTTPError):
        parsed = parse_url(proxy)
        if parsed.scheme in ("http", "https") and parsed.host:
            login = parsed.auth
            return remove_login(proxy), {} if login is None else make_headers(proxy_basic_auth=unquote(login))
    raise DeliveryFailure("The proxy is not a URL such as http://proxy.example.com:3128.")


def _choose_proxy(definition: Http) -> str | Secret | None:
    if definition.proxy != FROM_ENVIRONMENT:
        return definition.proxy
    target = urlsplit(definition.url)
    if proxy_bypass(target.netloc):
        return None
    proxies = getproxies()
    return proxies.get(target.scheme) or proxies.get("all")


def _content_type(part: Part) -> str:
    content_type = format_content_type(part)
    # The type of a part is not trusted: a line break in it must not become a header.
    return content_type if is_header_value(content_type) else "application/octet-stream"


def _read_response(response: urllib3.BaseHTTPResponse, redact: Callable[[str], str] = str) -> str:
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
    return _to_one_line(redact(data.decode(errors="replace")))


def _suggest_fix(response: urllib3.BaseHTTPResponse) -> str:
    location = response.headers.get("Location")
    if 300 <= response.status < 400 and location:
        return f"It redirects to {location!r}. Redirects are not followed; declare this URL if it is right."
    return ""


def _describe_error(error: Exception) -> str:
    if isinstance(error, ProtocolError) and isinstance(error.args[-1], Exception):
        return _to_one_line(f"{type(error.args[-1]).__name__}: {error.args[-1]}")
    # urllib3 writes the connection object before the description of the error.
    return _to_one_line(re.sub(r"^<?[\w.]*(Connection|Pool)\([^)]*\)(?:[^:]*>)?: ", "", str(error)))


def _to_one_line(text: str) -> str:
    words = re.sub(r"[\x00-\x20\x7f-\x9f]+", " ", text).strip()
    return words if len(words) <= _REASON_LENGTH else f"{words[:_REASON_LENGTH]}…"
