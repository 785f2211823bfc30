"""Rejects requests that a proxy and this server could read differently.

An attacker who makes a proxy and a server disagree on the end of a request can hide a second request in the body of the
first one (request smuggling). h11 accepts several forms that allow this, for compatibility. They are rejected here,
before h11 reads them, with 400 and the end of the connection.
"""

from __future__ import annotations

import re
from typing import NoReturn

from postroom.http.messages import RequestFailed

_TOKEN = rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+"
_TEXT = rb"[\t\x20-\x7e\x80-\xff]*"

#: A bare LF, a bare CR (the last byte may be the start of CRLF), a folded line, or a control character.
_INVALID_IN_HEAD = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)|\n[ \t]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_FRAMING_FIELD = re.compile(rb"^(content-length|transfer-encoding|host):[ \t]*(.*?)[ \t]*\r$", re.I | re.M)
_LENGTH = re.compile(rb"[0-9]+")
_HOST = re.compile(rb"[-0-9A-Za-z._~!$&'()*+,;=%:\[\]]*")
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;" + _TEXT + rb")?\r\n")
_TRAILER_LINE = re.compile(rb"(" + _TOKEN + rb"):" + _TEXT + rb"\r\n")
_NOT_IN_TRAILERS = {b"content-length", b"transfer-encoding", b"host"}
_TARGET = re.compile(r"(?:https?://[^/?#]+(?=[/?]|\Z))?(/[^?#]*)?(?:\?([^#]*))?", re.I)


def check_head(received: bytes, checked: int = 0) -> int:
    """Raise RequestFailed if the head of a request is ambiguous. Return how many bytes were checked. Pass this number
    with the next part of the head, so that a head that arrives in many parts is checked once."""
    end = received.find(b"\r\n\r\n", max(0, checked - 3))
    head = received if end < 0 else received[: end + 4]
    if invalid := _INVALID_IN_HEAD.search(head, max(0, checked - 1)):
        if invalid[0].startswith(b"\n") and len(invalid[0]) > 1:
            _reject("A header line is folded.")
        _reject(f"The head of the request contains an invalid line end or control character: {invalid[0]!r}.")
    if end < 0:
        return len(head)
    request_line, _, _ = head.partition(b"\r\n")
    if not request_line.endswith((b" HTTP/1.1", b" HTTP/1.0")):
        _reject("The request line does not end with HTTP/1.1 or HTTP/1.0.")
    fields: dict[bytes, list[bytes]] = {}
    for name, value in _FRAMING_FIELD.findall(head):
        fields.setdefault(name.lower(), []).append(value)
    _check_length(
        fields.get(b"content-length", []),
        fields.get(b"transfer-encoding", []),
        is_http_1_0=request_line.endswith(b"1.0"),
    )
    if not all(map(_HOST.fullmatch, fields.get(b"host", []))):
        _reject("The value of Host is not valid.")
    return len(head)


def _check_length(lengths: list[bytes], codings: list[bytes], *, is_http_1_0: bool) -> None:
    if lengths and codings:
        _reject("The request has Content-Length and Transfer-Encoding.")
    if len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
        _reject("Content-Length is not one decimal number.")
    if codings and (len(codings) > 1 or codings[0].lower() != b"chunked"):
        _reject("Transfer-Encoding is not chunked. No other transfer coding is supported.")
    if codings and is_http_1_0:
        _reject("HTTP/1.0 has no Transfer-Encoding.")


def split_target(target: str) -> tuple[str, str]:
    """Return the path and the query of the target of a request. Raise RequestFailed if it has neither the form
    ``/path?query`` nor ``http://host/path?query`` nor ``*``.

    ``//host/path`` is a path that starts with two slashes, not a host and a path.
    """
    if target == "*":
        return target, ""
    found = _TARGET.fullmatch(target)
    if found is None or target.startswith("?"):
        _reject("The target of the request cannot be read.")
    return found[1] or "/", found[2] or ""


class ChunkedBodyCheck:
    """Checks a chunked body, in the pieces that arrive: the lines with the sizes, and the trailers.

    h11 checks the line end after the data of each chunk, and limits the length of lines.
    """

    def __init__(self) -> None:
        self._line = b""
        self._bytes_to_skip = 0
        self._has_trailers = self._is_complete = False

    def check(self, received: bytes) -> None:
        """Raise RequestFailed if the body is ambiguous. What follows the body is not checked."""
        at = 0
        while at < len(received) and not self._is_complete:
            if self._bytes_to_skip:
                skipped = min(self._bytes_to_skip, len(received) - at)
                self._bytes_to_skip -= skipped
                at += skipped
                continue
            end = received.find(b"\n", at) + 1
            if not end:
                self._line += received[at:]
                return
            self._check_line(self._line + received[at:end])
            self._line = b""
            at = end

    def _check_line(self, line: bytes) -> None:
        if self._has_trailers:
            self._is_complete = line == b"\r\n"
            trailer = _TRAILER_LINE.fullmatch(line)
            if not self._is_complete and (trailer is None or trailer[1].lower() in _NOT_IN_TRAILERS):
                _reject("A trailer of the body is not valid.")
            return
        size_line = _CHUNK_LINE.fullmatch(line)
        if size_line is None:
            _reject("The size of a chunk is not a hexadecimal number.")
        size = int(size_line[1], 16)
        self._has_trailers = size == 0
        self._bytes_to_skip = size + len(b"\r\n") if size else 0


def _reject(why: str) -> NoReturn:
    raise RequestFailed(400, why, {"Connection": "close"})
