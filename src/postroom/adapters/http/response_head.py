"""The status and the headers of the HTTP response to a caller, as properties of the message that answers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from postroom.adapters.http.definition import find_response_header_problem, is_header_value
from postroom.errors import BadValue
from postroom.message import Context, Message
from postroom.system_properties import HTTP

#: Responses with these statuses have no body.
WITHOUT_BODY = (204, 205, 304)
_MIN_STATUS, _MAX_STATUS = 200, 599
#: The maximum number of characters of all headers.
_MAX_HEADERS = 16_384
_LINE_BREAK = "\r\n"


@dataclass(frozen=True, kw_only=True)
class ResponseHead:
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def set_http_response(
    message: Message, *, status: int | None = None, headers: Mapping[str, str] | None = None
) -> Message:
    """Return the answer to an HTTP caller with this status and these headers:
    ``set_http_response(Message.of(b"..."), status=404, headers={"Retry-After": "5"})``.

    Its context has them as ``HTTP.ResponseStatusCode`` and ``HTTP.UserHttpHeaders``. Raise BadValue if a response
    cannot have them."""
    context = message.context
    if status is not None:
        context = context.write(HTTP.ResponseStatusCode, _check_status(status))
    if headers is not None:
        context = context.write(HTTP.UserHttpHeaders, format_headers(headers))
    return replace(message, context=context)


def format_headers(headers: Mapping[str, str]) -> str:
    """Return headers as HTTP.UserHttpHeaders has them, in lines. Raise BadValue if a response cannot have one."""
    text = _LINE_BREAK.join(f"{name}: {_check_header(name, value)}" for name, value in headers.items())
    _parse_headers(text)
    return text


def read_response_head(context: Context) -> ResponseHead:
    """Return the status and the headers in the context of an answer. Raise BadValue if a response cannot have them."""
    status = context.get(HTTP.ResponseStatusCode)
    headers = context.get(HTTP.UserHttpHeaders)
    return ResponseHead(
        status=200 if status is None else _check_status(status),
        headers={} if headers is None else _parse_headers(headers),
    )


def _check_status(status: object) -> int:
    if type(status) is int and _MIN_STATUS <= status <= _MAX_STATUS:
        return status
    raise BadValue(
        f"An HTTP response cannot have the status {status!r}.",
        hint=f"Give HTTP.ResponseStatusCode a number from {_MIN_STATUS} to {_MAX_STATUS}.",
    )


def _check_header(name: str, value: str) -> str:
    if (problem := find_response_header_problem(name)) is not None:
        raise BadValue(
            f"An HTTP response cannot have this header: {problem}", hint="Leave it out of HTTP.UserHttpHeaders."
        )
    if not is_header_value(value):
        raise BadValue(
            f"The value of the header {name} contains a line break or another character that is not allowed.",
            hint="Use Latin-1 without control characters, or encode the value.",
        )
    return value


def _parse_headers(text: str) -> dict[str, str]:
    if len(text) > _MAX_HEADERS:
        raise BadValue(f"HTTP.UserHttpHeaders has {len(text):,} characters, and can have {_MAX_HEADERS:,}.")
    headers: dict[str, str] = {}
    for line in filter(None, text.split(_LINE_BREAK)):
        name, colon, value = line.partition(":")
        if not colon:
            raise BadValue(
                f"HTTP.UserHttpHeaders has a line without a colon, in which {len(line):,} characters are.",
                hint=r"Separate headers by '\r\n': 'Location: /orders/4711\r\nRetry-After: 5'.",
            )
        if name.lower() in (known.lower() for known in headers):
            raise BadValue(f"HTTP.UserHttpHeaders has the header {name} twice.", hint="Join its values by commas.")
        headers[name] = _check_header(name, value.strip())
    return headers
