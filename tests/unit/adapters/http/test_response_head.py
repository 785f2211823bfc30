"""The status and the headers of an HTTP response, in the context of the message that answers a caller."""

from __future__ import annotations

import pytest

from postroom import HTTP, BadValue, Message, set_http_response
from postroom.adapters.http.response_head import ResponseHead, read_response_head
from postroom.message import Context


def test_an_answer_has_a_status_and_headers() -> None:
    answer = set_http_response(Message.of(b"no"), status=404, headers={"Retry-After": "5", "ETag": '"a, b: c"'})
    assert answer.data == b"no"
    assert answer.context[HTTP.UserHttpHeaders] == 'Retry-After: 5\r\nETag: "a, b: c"'
    head = ResponseHead(status=404, headers={"Retry-After": "5", "ETag": '"a, b: c"'})
    assert read_response_head(answer.context) == head
    assert read_response_head(set_http_response(answer, status=200).context) == ResponseHead(headers=head.headers)


def test_an_answer_without_properties_has_the_status_200_and_no_headers() -> None:
    assert read_response_head(Context()) == ResponseHead(status=200, headers={})


@pytest.mark.parametrize("status", [42, 100, 600, True, -1])
def test_a_status_that_a_response_cannot_have_is_refused(status: int) -> None:
    with pytest.raises(BadValue, match=f"cannot have the status {status}"):
        set_http_response(Message.of(b""), status=status)


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"X-Note": "a\r\nSet-Cookie: b"}, "value of the header X-Note contains a line break"),
        ({"X-Note": "a\nb"}, "value of the header X-Note contains a line break"),
        ({"X-Note": "ü€"}, "value of the header X-Note contains"),
        ({"X Note": "a"}, "'X Note' is not a valid header name"),
        ({"Transfer-Encoding": "chunked"}, "the header Transfer-Encoding belongs to the connection"),
        ({"content-length": "5"}, "the header content-length belongs to the connection"),
        ({"Content-Type": "text/plain"}, "the header Content-Type belongs to the connection"),
        ({"ETag": "1", "etag": "2"}, "has the header etag twice"),
        ({"X-Note": "a" * 20_000}, "has 20,008 characters, and can have 16,384"),
    ],
)
def test_headers_that_a_response_cannot_have_are_refused(headers: dict[str, str], reason: str) -> None:
    with pytest.raises(BadValue, match=reason):
        set_http_response(Message.of(b""), headers=headers)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("ETag 1", "a line without a colon"), ("ETag: 1\nX: 2", "contains a line break"), ("Upgrade: h2", "Upgrade")],
)
def test_headers_of_other_components_are_checked_when_they_are_read(text: str, reason: str) -> None:
    with pytest.raises(BadValue, match=reason):
        read_response_head(Context().write(HTTP.UserHttpHeaders, text))
