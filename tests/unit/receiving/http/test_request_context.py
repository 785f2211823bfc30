from __future__ import annotations

import base64
from collections.abc import AsyncIterator

import pytest

from postroom.http.messages import Request
from postroom.receiving.http.requests import build_request_context
from postroom.system_properties import HTTP


async def no_body() -> AsyncIterator[bytes]:
    return
    yield b""


def request(authorization: str) -> Request:
    headers = (("authorization", authorization),)
    return Request(method="POST", path="/", query="", headers=headers, remote="192.0.2.1", body=no_body())


def test_the_user_name_of_basic_authentication_is_written() -> None:
    credentials = base64.b64encode(b"ann:secret").decode()
    assert build_request_context(request(f"Basic {credentials}"))[HTTP.Username] == "ann"


@pytest.mark.parametrize("credentials", ["\xe9", "no base64", "/w==", ""])
def test_credentials_that_cannot_be_read_are_no_user_name(credentials: str) -> None:
    assert HTTP.Username not in build_request_context(request(f"Basic {credentials}"))
