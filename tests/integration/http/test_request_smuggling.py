"""Known techniques of HTTP request smuggling: a request that is hidden in another one is never handled.

Every entry of AMBIGUOUS is answered with one 400 and the end of the connection. Every entry of UNAMBIGUOUS has one
meaning by RFC 9112, and the request that follows it is handled as the next request.
"""

from __future__ import annotations

import json
import re
import socket
from contextlib import closing, suppress

import pytest

from postroom.http.messages import Request, Response
from tests.support.http_server import connect_from, echo, receive_all, run_server

HIDDEN = b"POST /hidden HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
NEXT = b"POST /next HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\nab"
CHUNKED = b"Transfer-Encoding: chunked"
#: A chunked body that ends at once. A reader that ignores Transfer-Encoding takes it for a part of a longer body.
ENDED = b"0\r\n\r\n" + HIDDEN


def post(*fields: bytes, body: bytes = b"", line: bytes = b"POST /first HTTP/1.1", host: bytes = b"Host: x") -> bytes:
    return b"\r\n".join([line, *([host] if host else []), *fields]) + b"\r\n\r\n" + body


def chunked(body: bytes) -> bytes:
    return post(CHUNKED, body=body)


def length(value: bytes) -> bytes:
    """A request whose body contains the hidden request."""
    return post(b"Content-Length: " + value, body=HIDDEN)


LENGTH = b"Content-Length: %d" % len(ENDED)
SIZE = b"%x" % len(HIDDEN)
#: A whole chunk with the hidden request, and the end of the body.
WHOLE_CHUNK = b"\r\n" + HIDDEN + b"\r\n0\r\n\r\n"

AMBIGUOUS: dict[str, bytes] = {
    # Both lengths
    "CL.TE": post(LENGTH, CHUNKED, body=ENDED),
    "TE.CL": post(CHUNKED, b"Content-Length: 4", body=SIZE + WHOLE_CHUNK),
    "CL.TE with zero": post(b"Content-Length: 0", CHUNKED, body=ENDED),
    "CL.TE in other cases": post(b"CONTENT-LENGTH: 5", b"transfer-encoding: CHUNKED", body=ENDED),
    "CL.TE with an unknown coding": post(LENGTH, b"Transfer-Encoding: xchunked", body=ENDED),
    "CL.TE with an empty coding": post(LENGTH, b"Transfer-Encoding:", body=ENDED),
    "CL.TE with identity": post(LENGTH, b"Transfer-Encoding: identity", body=ENDED),
    "TE in HTTP/1.0": post(CHUNKED, b"Connection: keep-alive", body=ENDED, line=b"POST /first HTTP/1.0"),
    "CL.TE in HTTP/1.0": post(LENGTH, CHUNKED, body=ENDED, line=b"POST /first HTTP/1.0"),
    # Transfer-Encoding
    **{
        f"TE {value!r}": post(b"Transfer-Encoding:" + value, body=ENDED)
        for value in (
            b"",
            b" ",
            b" xchunked",
            b" chunkedx",
            b" identity",
            b" gzip",
            b" chunked, identity",
            b" identity, chunked",
            b" gzip, chunked",
            b" chunked, gzip",
            b" chunked, chunked",
            b" chunked,",
            b" ,chunked",
            b" chunked;ext=1",
            b" chunked;",
            b' "chunked"',
            b" 'chunked'",
            b" chunk ed",
            b" \x0bchunked",
            b" chunked\x0b",
            b" \x0cchunked",
            b" \x00chunked",
            b" chunked\x00",
            b" chunked\x7f",
            b" \xa0chunked",
            b" \x85chunked",
            b" \xff",
            b"\r\n chunked",
            b"\r\n\tchunked",
            b" chunked\r\n x",
            b"\n chunked",
            b" \rchunked",
            b" chunked\r",
            b" chunked\n",
        )
    },
    "TE twice": post(CHUNKED, CHUNKED, body=ENDED),
    "TE twice, identity first": post(b"Transfer-Encoding: identity", CHUNKED, body=ENDED),
    "TE twice, unknown last": post(CHUNKED, b"Transfer-Encoding: cow", body=ENDED),
    **{
        f"field {field!r}": post(field, body=ENDED)
        for field in (
            b"Transfer-Encoding : chunked",
            b"Transfer-Encoding\t: chunked",
            b"Transfer-Encoding\x0b: chunked",
            b"Transfer-Encoding\x00: chunked",
            b" Transfer-Encoding: chunked",
            b"\tTransfer-Encoding: chunked",
            b"X: y\r\n Transfer-Encoding: chunked",
            b"X: y\rTransfer-Encoding: chunked",
            b"X: y\nTransfer-Encoding: chunked",
            b"X: y\r\r\nTransfer-Encoding: chunked",
            b"X: y\n\rTransfer-Encoding: chunked",
            b"Transfer Encoding: chunked",
            b"Transfer-Encoding",
            b"Transfer-Encoding\r\n : chunked",
            b"Transfer\xadEncoding: chunked",
            b"(Transfer-Encoding): chunked",
            b": chunked",
            b":",
            b"Content-Length : 5",
            b"Content-Length\t: 5",
            b"Content-Length\r\n : 5",
            b" Content-Length: 5",
            b"Content-Length",
            b"X: \x00",
            b"X: \x01",
            b"X: \x08",
            b"X: \x1f",
            b"X: \x7f",
            b"X\x00: y",
            b"X\x80: y",
            b"X@: y",
            b"X[: y",
            b"\x00: y",
        )
    },
    # Content-Length
    **{
        f"CL {value!r}": length(value)
        for value in (
            b"",
            b"+5",
            b"-5",
            b"-0",
            b"0x5",
            b"5h",
            b"5 5",
            b"5 ,5",
            b"5, 5",
            b"5,6",
            b"5,",
            b",5",
            b"5;5",
            b"5.0",
            b"5e1",
            b"1_0",
            b"five",
            b"\x0b5",
            b"5\x0c",
            b"5\x00",
            b"\xb2",
            b"\xd9\xa5",
            b"\xa05",
            b'"5"',
            b"99999999999999999999999999",
            b"9" * 5_000,
            b"0" * 5_000,
            b"\r\n 5",
            b"5\r\n 6",
            b"5\r",
            b"5\n",
        )
    },
    "CL twice": post(b"Content-Length: 0", b"Content-Length: 0", body=HIDDEN),
    "CL twice, different": post(b"Content-Length: 0", b"Content-Length: %d" % len(HIDDEN), body=HIDDEN),
    "CL twice, in other cases": post(b"Content-Length: 0", b"content-length: 0", body=HIDDEN),
    "CL twice, once signed": post(b"Content-Length: 0", b"Content-Length: +0", body=HIDDEN),
    # Line ends of the head
    "bare LF everywhere": post(LENGTH, body=ENDED).replace(b"\r\n", b"\n"),
    "bare CR everywhere": post(LENGTH, body=ENDED).replace(b"\r\n", b"\r"),
    "bare LF after the request line": post(b"Content-Length: 0").replace(b"\r\n", b"\n", 1),
    "bare LF ends the head": b"POST /first HTTP/1.1\r\nHost: x\r\nContent-Length: 0\n\r\n" + HIDDEN,
    "two bare LF end the head": b"POST /first HTTP/1.1\r\nHost: x\r\nContent-Length: 0\n\n" + HIDDEN,
    "CRLF LF ends the head": b"POST /first HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\n" + HIDDEN,
    "CRLF CR ends the head": b"POST /first HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r" + HIDDEN,
    "folded line": post(b"X: a\r\n b", b"Content-Length: 0"),
    "folded line with a tab": post(b"X: a\r\n\tb", b"Content-Length: 0"),
    "folded line of spaces": post(b"X: a\r\n ", b"Content-Length: 0"),
    "folded first line": post(b"Content-Length: 0", host=b" X: y\r\nHost: x"),
    "CRLF before the request": b"\r\n" + post(b"Content-Length: 0"),
    "LF before the request": b"\n" + post(b"Content-Length: 0"),
    "space before the request": b" " + post(b"Content-Length: 0"),
    # The request line
    **{
        f"line {line!r}": post(b"Content-Length: %d" % len(HIDDEN), body=HIDDEN, line=line)
        for line in (
            b"POST /first HTTP/2.0",
            b"POST /first HTTP/3.0",
            b"POST /first HTTP/1.2",
            b"POST /first HTTP/1.9",
            b"POST /first HTTP/0.9",
            b"POST /first HTTP/1.10",
            b"POST /first HTTP/01.1",
            b"POST /first HTTP/1",
            b"POST /first HTTP/1.",
            b"POST /first HTTP/1,1",
            b"POST /first HTTP/1.1 ",
            b"POST /first HTTP/1.1x",
            b"POST /first http/1.1",
            b"POST /first HTTPS/1.1",
            b"POST /first HTTP /1.1",
            b"POST /first HTTP/ 1.1",
            b"POST /first HTTP/+1.1",
            b"POST /first",
            b"POST  /first HTTP/1.1",
            b"POST /first  HTTP/1.1",
            b"POST\t/first HTTP/1.1",
            b"POST /first\tHTTP/1.1",
            b"POST\x0b/first HTTP/1.1",
            b"POST /fi rst HTTP/1.1",
            b"POST /first\x00 HTTP/1.1",
            b"POST /first\x80 HTTP/1.1",
            b"POST /first\r HTTP/1.1",
            b"PO\x00ST /first HTTP/1.1",
            b"PO(ST /first HTTP/1.1",
            b"POST first HTTP/1.1",
            b"POST ?first HTTP/1.1",
            b"POST /first#part HTTP/1.1",
            b"POST x:80 HTTP/1.1",
            b"POST ftp://x/first HTTP/1.1",
            b"POST http:///first HTTP/1.1",
            b"POST http:/first HTTP/1.1",
            b"POST \\first HTTP/1.1",
            b"CONNECT x:443 HTTP/1.1",
            b"PRI * HTTP/2.0",
        )
    },
    # Host
    "no Host": post(b"Content-Length: 0", host=b""),
    "Host twice": post(b"Host: y", b"Content-Length: 0"),
    "the same Host twice": post(b"Host: x", b"Content-Length: 0"),
    "Host with a space": post(b"Content-Length: 0", host=b"Host: x y"),
    "Host with a path": post(b"Content-Length: 0", host=b"Host: x/first"),
    "Host with a user": post(b"Content-Length: 0", host=b"Host: a@x"),
    "Host with a space before the colon": post(b"Content-Length: 0", host=b"Host : x"),
    "Host with obs-text": post(b"Content-Length: 0", host=b"Host: x\xe9"),
    # Chunks
    **{
        f"chunk size {size!r}": chunked(size + WHOLE_CHUNK)
        for size in (
            b"",
            b" " + SIZE,
            SIZE + b" ",
            SIZE + b"\t",
            b"\t" + SIZE,
            b"+" + SIZE,
            b"-" + SIZE,
            b"-1",
            b"0x" + SIZE,
            b"0X" + SIZE,
            b"x" + SIZE,
            SIZE + b"h",
            SIZE + b".0",
            SIZE + b",",
            SIZE + b"_",
            b"3_7",
            SIZE + b" ;x",
            SIZE + b"\x00",
            SIZE + b"\x0b",
            SIZE + b"\r",
            SIZE + b"\n",
            SIZE + b"\r\r",
            b"\xb2",
            b"100000000000000" + SIZE,
            b"fffffffffffffffff",
            b"0" * 30 + SIZE,
        )
    },
    "chunk size with bare LF": chunked(SIZE + WHOLE_CHUNK.replace(b"\r\n", b"\n", 1)),
    "chunk size with bare CR": chunked(SIZE + b"\r" + HIDDEN + b"\r\n0\r\n\r\n"),
    "chunk extension with bare LF": chunked(b"5;x\nabcde\r\n0\r\n\r\n"),
    "chunk extension with bare LF, then CRLF": chunked(b"2;\nxx\r\n%s\r\n%s\r\n0\r\n\r\n" % (SIZE, HIDDEN)),
    "chunk extension with bare CR": chunked(b"5;x\rabcde\r\n0\r\n\r\n"),
    "chunk extension with NUL": chunked(b"5;x\x00\r\nabcde\r\n0\r\n\r\n"),
    "chunk longer than its size": chunked(b"5\r\nabcdef\r\n0\r\n\r\n"),
    "chunk with bare LF after its data": chunked(b"5\r\nabcde\n0\r\n\r\n"),
    "chunk with bare CR after its data": chunked(b"5\r\nabcde\r0\r\n\r\n"),
    "chunk with two bytes for CRLF": chunked(b"5\r\nabcdeXX" + ENDED),
    "chunk without CRLF after its data": chunked(b"5\r\nabcde0\r\n\r\n"),
    "last chunk with bare LF": chunked(b"0\n\n" + HIDDEN),
    "last chunk with bare LF after CRLF": chunked(b"0\r\n\n" + HIDDEN),
    "last chunk with bare LF before CRLF": chunked(b"0\n\r\n" + HIDDEN),
    "last chunk with bare CR": chunked(b"0\r\n\r" + HIDDEN),
    "last chunk with space": chunked(b"0 \r\n\r\n" + HIDDEN),
    "last chunk without an empty line": chunked(b"0\r\n" + HIDDEN),
    # Trailers
    **{
        f"trailer {trailer!r}": chunked(b"0\r\n" + trailer + b"\r\n\r\n" + HIDDEN)
        for trailer in (
            b"Content-Length: 5",
            b"Content-Length: %d" % len(HIDDEN),
            b"Transfer-Encoding: chunked",
            b"transfer-encoding: gzip",
            b"Host: y",
            b"no colon",
            b"X : y",
            b" X: y",
            b"X: y\r\n z",
            b"X: y\nZ: z",
            b"X: y\n",
            b"X: y\r",
            b"X: \x00",
            b": y",
        )
    },
}

UNAMBIGUOUS: dict[str, bytes] = {
    "no body": post(),
    "CL": length(b"%d" % len(HIDDEN)),
    "CL with leading zeros": length(b"000%d" % len(HIDDEN)),
    "CL with space around": length(b" \t%d\t " % len(HIDDEN)),
    "CL without space": post(b"Content-Length:%d" % len(HIDDEN), body=HIDDEN),
    "CL in other cases": post(b"cOnTeNt-LeNgTh: %d" % len(HIDDEN), body=HIDDEN),
    "CL that a proxy removes": post(b"Content-Length: %d" % len(HIDDEN), b"Connection: Content-Length", body=HIDDEN),
    "a name with an underscore": post(b"Content_Length: 0", b"Content-Length: %d" % len(HIDDEN), body=HIDDEN),
    "a name that contains the other": post(b"X-Transfer-Encoding: chunked", b"Content-Length: 5", body=b"0\r\n\r\n"),
    "a value with obs-text": post(b"X: \xe9\xff", b"Content-Length: 0"),
    "a value like a field": post(b"X: Transfer-Encoding: chunked", b"Content-Length: 5", body=b"0\r\n\r\n"),
    "an empty value": post(b"X:", b"Content-Length: 0"),
    "TE": chunked(SIZE + WHOLE_CHUNK),
    "TE in upper case": post(b"TRANSFER-ENCODING:CHUNKED", body=SIZE + WHOLE_CHUNK),
    "TE with space around": post(b"Transfer-Encoding: \tchunked\t ", body=SIZE + WHOLE_CHUNK),
    "chunk size in upper case": chunked(SIZE.upper() + WHOLE_CHUNK),
    "chunk size with leading zeros": chunked(b"000" + SIZE + WHOLE_CHUNK),
    "chunk extension": chunked(SIZE + b';name="a value";other' + WHOLE_CHUNK),
    "last chunk with zeros": chunked(b"%s\r\n%s\r\n0000;x\r\n\r\n" % (SIZE, HIDDEN)),
    "a trailer": chunked(b"%s\r\n%s\r\n0\r\nDigest: x\r\n\r\n" % (SIZE, HIDDEN)),
    "GET with CL": post(b"Content-Length: %d" % len(HIDDEN), body=HIDDEN, line=b"GET /first HTTP/1.1"),
    "GET with TE": post(CHUNKED, body=SIZE + WHOLE_CHUNK, line=b"GET /first HTTP/1.1"),
    "HEAD with CL": post(b"Content-Length: %d" % len(HIDDEN), body=HIDDEN, line=b"HEAD /first HTTP/1.1"),
    "DELETE with CL": post(b"Content-Length: %d" % len(HIDDEN), body=HIDDEN, line=b"DELETE /first HTTP/1.1"),
    "absolute target": post(b"Content-Length: 0", line=b"POST http://y/first HTTP/1.1"),
    "absolute target in upper case": post(b"Content-Length: 0", line=b"POST HTTPS://y:8443/first HTTP/1.1"),
    "an empty Host": post(b"Content-Length: 0", host=b"Host:"),
    "Expect": post(b"Expect: 100-continue", b"Content-Length: %d" % len(HIDDEN), body=HIDDEN),
    "Expect twice": post(
        b"Expect: 100-continue", b"Expect: 100-continue", b"Content-Length: %d" % len(HIDDEN), body=HIDDEN
    ),
    "Expect with an unknown value": post(b"Expect: y 100-continue", b"Content-Length: 70", body=b"x" * 70),
    "Expect without a body": post(b"Expect: 100-continue", b"Content-Length: 0"),
    "Expect with chunks": post(b"Expect: 100-continue", CHUNKED, body=SIZE + WHOLE_CHUNK),
}


class Recorder:
    """A handler that records the paths of the requests that it gets. With ``reads`` it reads their bodies."""

    def __init__(self, *, reads: bool) -> None:
        self._reads = reads
        self.paths: list[str] = []

    async def __call__(self, request: Request) -> Response:
        self.paths.append(request.path)
        return await echo(request) if self._reads else Response(status=404)


def find_statuses(received: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 ([2-9]\d\d) ", received)]


def send(handler: Recorder, sent: bytes, *, piece: int = 1 << 16) -> bytes:
    """Send bytes in pieces, and return everything that a server with this handler responds."""
    with run_server(handler) as server, closing(connect_from(server, "127.0.0.1")) as client:
        with suppress(OSError):  # the server may close the connection before it has everything
            for start in range(0, len(sent), piece):
                client.sendall(sent[start : start + piece])
            client.shutdown(socket.SHUT_WR)
        return receive_all(client)


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_an_ambiguous_request_gets_400_and_ends_the_connection(name: str) -> None:
    for piece in (1 << 16, 7):
        handler = Recorder(reads=True)
        received = send(handler, AMBIGUOUS[name] + NEXT, piece=piece)
        assert set(handler.paths) <= {"/first"}
        assert find_statuses(received) == [400], received
        assert b"connection: close\r\n" in received.lower()
        assert json.loads(received.partition(b"\r\n\r\n")[2])["error"]


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_an_ambiguous_request_that_is_answered_early_ends_the_connection(name: str) -> None:
    """A handler that does not read the body answers before an error in the body is found."""
    for piece in (1 << 16, 7):
        handler = Recorder(reads=False)
        received = send(handler, AMBIGUOUS[name] + NEXT, piece=piece)
        assert set(handler.paths) <= {"/first"}
        assert find_statuses(received) == ([404] if handler.paths else [400]), received


@pytest.mark.parametrize("name", UNAMBIGUOUS)
def test_an_unambiguous_request_is_followed_by_the_next_one(name: str) -> None:
    handler = Recorder(reads=True)
    received = send(handler, UNAMBIGUOUS[name] + NEXT)
    assert handler.paths == ["/first", "/next"]
    assert find_statuses(received) == [200, 200]


@pytest.mark.parametrize("name", UNAMBIGUOUS)
def test_a_body_that_is_not_read_is_not_a_request(name: str) -> None:
    handler = Recorder(reads=False)
    received = send(handler, UNAMBIGUOUS[name] + NEXT)
    assert handler.paths in (["/first"], ["/first", "/next"])
    assert set(find_statuses(received)) == {404}


def test_a_path_that_starts_with_two_slashes_is_not_a_host() -> None:
    handler = Recorder(reads=True)
    send(handler, post(line=b"POST //first/next HTTP/1.1"))
    assert handler.paths == ["//first/next"]


def test_an_upgrade_ends_after_its_response() -> None:
    """The bytes after a request for another protocol could belong to that protocol."""
    handler = Recorder(reads=True)
    upgrade = post(
        b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAA", b"Content-Length: 0"
    )
    received = send(handler, upgrade + HIDDEN)
    assert "/hidden" not in handler.paths
    assert find_statuses(received) == [200]
