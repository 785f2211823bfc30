"""RR-16: error responses have the format of the caller."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from postroom.http.messages import Request, Response, build_error_response
from postroom.receiving.http.faults import format_fault

_JSON = "application/json"
_XML = "application/xml"
_TEXT = "text/plain; charset=utf-8"


async def _read_nothing() -> AsyncIterator[bytes]:
    return
    yield b""


def build_request(**headers: str) -> Request:
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Request(method="POST", path="/", query="", headers=named, remote="127.0.0.1", body=_read_nothing())


@pytest.mark.parametrize(
    ("headers", "content_type"),
    [
        ({}, _TEXT),
        ({"content_type": "application/x-www-form-urlencoded", "accept": "*/*"}, _TEXT),
        ({"content_type": "application/json; charset=utf-8"}, _JSON),
        ({"content_type": "application/vnd.quote+json", "accept": "*/*"}, _JSON),
        ({"content_type": "text/xml"}, _XML),
        ({"content_type": "application/soap+xml", "accept": "*/*"}, _XML),
        ({"content_type": "text/xml", "accept": "application/json"}, _JSON),
        ({"content_type": "text/xml", "accept": "application/json;q=0.5, text/plain"}, _TEXT),
        ({"content_type": "text/xml", "accept": "application/json;q=0, text/html"}, _XML),
        ({"content_type": "text/csv", "accept": "application/xml;q=wrong"}, _XML),
    ],
)
def test_a_fault_has_the_format_that_the_request_accepts_or_has(headers: dict[str, str], content_type: str) -> None:
    fault = format_fault(build_request(**headers), build_error_response(502, "a < b", {"Retry-After": "5"}))
    assert fault.status == 502
    assert fault.headers["Retry-After"] == "5"
    if content_type == _JSON:
        assert (fault.body, fault.content) == (None, {"error": "a < b"})
        return
    assert fault.headers["Content-Type"] == content_type
    expected = {
        _TEXT: b"a < b\n",
        _XML: b'<?xml version="1.0" encoding="utf-8"?>\n<fault><error>a &lt; b</error></fault>\n',
    }
    assert fault.body == expected[content_type]


def test_other_responses_stay_as_they_are() -> None:
    for response in Response(status=200, body=b"{}"), Response(status=200, content={"interchange_id": "1"}):
        assert format_fault(build_request(accept="text/xml"), response) is response
