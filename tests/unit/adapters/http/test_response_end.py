"""The end of a response is found while its bytes arrive."""

from __future__ import annotations

import pytest

from postroom.adapters.http.response_end import ResponseEnd

RESPONSES = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nX-A: b\r\ncontent-length:5\r\n\r\nhello",
    b"HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n",
    b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.0 200 OK\nContent-Length: 2\n\nok",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 \r\n\r\n",
]


@pytest.mark.parametrize("response", RESPONSES)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_response_is_complete_with_its_last_byte(response: bytes, size: int) -> None:
    end, received = ResponseEnd(), bytearray()
    for start in range(0, len(response), size):
        assert not received or not end.is_complete(received)
        received += response[start : start + size]
    assert end.is_complete(received)
    assert end.status in (200, 204, 503)


def test_the_status_is_known_after_the_head() -> None:
    end = ResponseEnd()
    received = bytearray(b"HTTP/1.1 202 Accepted\r\nContent-Length: 5\r\n\r")
    assert not end.is_complete(received)
    assert end.status == 0
    received += b"\n"
    assert not end.is_complete(received)
    assert end.status == 202


def test_a_response_without_a_size_ends_with_its_connection() -> None:
    assert not ResponseEnd().is_complete(bytearray(b"HTTP/1.1 200 OK\r\n\r\nsome text"))


@pytest.mark.parametrize("garbage", [b"\x00\x01 this is not HTTP\r\n\r\n", b"HTTP/1.1 OK\r\n\r\n", b"\r\n\r\n"])
def test_what_is_no_response_counts_as_complete(garbage: bytes) -> None:
    """Reading it raises the error."""
    assert ResponseEnd().is_complete(bytearray(garbage))
