"""Fuzz targets for HTTP requests, filters and application definitions."""

from __future__ import annotations

import asyncio
import atexit
import json
from pathlib import Path
from typing import Any

import h11

import postroom
from postroom.application.definition import ApplicationDefinition
from postroom.application.loading.load import load, read
from postroom.errors import BadValue
from postroom.filters.text import format_filter, parse
from postroom.http.connection import ClientProtocol, ConnectionLimits, HttpConnection
from postroom.http.event_loop import WorkerPool
from postroom.http.messages import RequestFailed, Response
from postroom.receiving.http.requests import build_request_context
from tests.support.filter_strategies import PROPERTIES
from tests.support.fuzzing.mutations import mutate_bytes, mutate_json, mutate_lines
from tests.support.fuzzing.target import MessageLost, Target


def make_http_target() -> Target:
    """Return the target for the heads and the framing of requests. Each request gets one response."""
    limits = ConnectionLimits(max_head_bytes=2_000)

    def check(data: bytes) -> str:
        statuses, content = loop.run_until_complete(_answer(data, limits))
        answered = _read_statuses(content)
        if answered != statuses:
            raise MessageLost(f"the responses are {answered} instead of {statuses}")
        return str(statuses[:3])

    loop = asyncio.new_event_loop()
    # The loop waits for nothing, and its sockets would be closed only with the process.
    atexit.register(loop.close)
    words = [
        *b"GET|POST| HTTP/1.1\r\n| HTTP/1.0\r\n|\r\n\r\n|\r\n|\n|\r|: |\0|\xff|http://[::1/|/%00?a#b|0\r\n\r\n".split(
            b"|"
        ),
        *b"Content-Length: 5\r\n|Content-Length: -1\r\n|Content-Length: 99999999999999999\r\n|Host: a\r\n".split(b"|"),
        *b"Transfer-Encoding: chunked\r\n|Transfer-Encoding: gzip\r\n|Expect: 100-continue\r\n|5;a=b\r\n".split(b"|"),
        *b"Connection: close\r\n|Upgrade: h2c\r\n|FFFFFFFFFFFF\r\n|Authorization: Basic /w==\r\n| x\r\n".split(b"|"),
        b"a" * 3_000,
    ]
    return Target(
        check=check,
        seeds=[
            b"POST /orders?x=1 HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello",
            b"POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3;x=y\r\nyou\r\n0\r\n\r\n",
            b"GET / HTTP/1.0\r\n\r\n",
            b"POST /a HTTP/1.1\r\nHost: a\r\nAuthorization: Basic YTpi\r\nIdempotency-Key: 7\r\n\r\n" * 2,
            b"POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
        ],
        mutations=[mutate_bytes(words), mutate_bytes(words), mutate_lines],
    )


class _SentBytes(asyncio.Transport):
    """A transport that collects what is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.content = bytearray()

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.content += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return False


async def _answer(data: bytes, limits: ConnectionLimits) -> tuple[list[int], bytes]:
    """Serve the requests of a connection as the server does. Return the status of each response, and what was sent."""
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    transport = _SentBytes()
    connection = HttpConnection(
        reader,
        transport,
        ClientProtocol(reader),
        remote="192.0.2.1",
        limits=limits,
        workers=WorkerPool(threads=1, max_waiting=0),
    )
    statuses: list[int] = []
    while await connection.wait_for_request():
        try:
            request = await connection.read_head()
            build_request_context(request)
            size = sum([len(piece) async for piece in request.body])
            response = Response(status=202, content={"size": size})
        except RequestFailed as failed:
            response = failed.response
        has_next = await connection.send(response)
        statuses.append(response.status)
        if not has_next:
            break
    return statuses, bytes(transport.content)


def _read_statuses(content: bytes) -> list[int]:
    """Parse the responses as a client does, and return their statuses."""
    statuses = []
    while content:
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method="POST", target="/", headers=[("Host", "a")]))
        client.send(h11.EndOfMessage())
        client.receive_data(content)
        while not isinstance(event := client.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                statuses.append(event.status_code)
        content = client.trailing_data[0]
    return statuses


def make_filter_target() -> Target:
    def check(data: bytes) -> str:
        text = data.decode("utf-8", "surrogateescape")
        parsed = parse(text, PROPERTIES)
        again = parse(format_filter(parsed), PROPERTIES)
        if again != parsed:
            raise MessageLost("the formatted filter is another filter")
        return f"{len(parsed.groups)} groups"

    words = [
        *b"and or not exists ( ) { } . , == != < <= > >= & = ! ' \" \\ \\u0041 true false 1 -2.5 1e400 0x1 1_000 NaN "
         b"inf Int0 Str0 Bool0 Float0 '2026-01-31T12:00:00Z' '\\' \xe2\x80\xa8 \xc2\xb2 \0 \xff".split(b" "),
        b" ", b"\n", b"((((((((((", b" and Int0 == 1", b" or Int0 == 1",
    ]  # fmt: skip
    names = [prop.dotted_name for prop in PROPERTIES]
    return Target(
        check=check,
        seeds=[
            b"Str0 == 'EU' and Int0 >= 10 or exists(Bool0)",
            b'(Int0 == 1 or Int0 == 2) and (Str0 != "it\'s" or Float0 < -2.5e3)',
            b"Int0 & 4 and Bool0 == true",
            " or ".join(f"exists({name})" for name in names).encode(),
        ],
        mutations=[mutate_bytes(words)],
    )


def make_application_target(folder: Path) -> Target:
    """Return the target for application files in Python, and for definitions as the MessageBox stores them."""
    path = folder / "app.py"

    def check(data: bytes) -> str:
        if not data.startswith(b"{"):
            path.write_bytes(data)
            loaded = read(path)
            if loaded.definition is None and not loaded.problems:
                raise MessageLost("the file was neither read nor reported")
            return f"{len(loaded.problems)} problems, {loaded.definition is not None}"
        definition = ApplicationDefinition.from_stored(_parse_object(data))
        if ApplicationDefinition.from_stored(definition.to_stored()) != definition:
            raise MessageLost("the stored definition is another definition")
        return "a definition"

    examples = Path(postroom.__file__).parent / "examples"
    stored = [
        load(examples / name / "app.py").to_stored() for name in ("orders", "http", "failures", "envelope", "bulk")
    ]
    words = [
        *b'( ) [ ] , = == & | "" None True -1 1e9 app. adapters. pipelines. filter= pipeline= Region'.split(b" "),
        b'"EU"', b"\n", b"    ", b"\xff", b"\0", b"# -*- coding: utf-7 -*-\n", b'"\\ud800"', b'"Str0 =="', b"lambda: 0",
    ]  # fmt: skip
    return Target(
        check=check,
        seeds=[(examples / "orders" / "app.py").read_bytes(), *(json.dumps(one).encode() for one in stored)],
        mutations=[mutate_json, mutate_json, mutate_json, mutate_lines, mutate_bytes(words)],
    )


def _parse_object(data: bytes) -> dict[str, object]:
    """Return what jsonb would return: PostgreSQL rejects everything else before Postroom reads it."""
    try:
        parsed = json.loads(data)
        data.decode()
        json.dumps(parsed, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise BadValue("not JSON") from None
    if not isinstance(parsed, dict):
        raise BadValue("not an object")
    return parsed
