"""The head of a request is checked once, also if it arrives byte by byte."""

from __future__ import annotations

import pytest

from postroom.http.framing import check_head
from postroom.http.messages import RequestFailed

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n"


def check_in_parts(head: bytes, size: int) -> None:
    checked = 0
    for end in range(size, len(head) + size, size):
        checked = check_head(head[:end], checked)
    assert checked == len(head)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_a_head_is_accepted_in_parts_of_any_size(size: int) -> None:
    check_in_parts(HEAD, size)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize(
    "head",
    [
        HEAD.replace(b"Host: a\r\n", b"Host: a\n"),
        HEAD.replace(b"Host: a\r\n", b"Host: a\r"),
        HEAD.replace(b"Content", b" Content"),
        HEAD.replace(b"Content", b"\tContent"),
        HEAD.replace(b"a\r\n", b"a\0\r\n"),
        HEAD.replace(b"Content-Length: 3", b"Content-Length: 3\r\nContent-Length: 4"),
    ],
)
def test_an_ambiguous_head_is_rejected_in_parts_of_any_size(head: bytes, size: int) -> None:
    with pytest.raises(RequestFailed):
        check_in_parts(head, size)


def test_what_was_checked_is_not_checked_again() -> None:
    assert check_head(b"\0" + HEAD[:10], checked=5) == 11
