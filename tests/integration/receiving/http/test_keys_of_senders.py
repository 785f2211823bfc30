"""The idempotency keys of an HTTP receive location belong to the sender."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

from postroom import adapters, pipelines
from postroom.pipelines.components import key_hash
from tests.integration.hosts.conftest import StartHost
from tests.integration.receiving.http.test_credentials import basic
from tests.integration.receiving.http.test_receive import send_request, serve
from tests.support.box import PROMOTE, Box
from tests.support.inbox_location import add_inbox_location
from tests.support.two_way import AnsweringAdapter, make_location_two_way, make_two_way
from tests.support.waiting import PATIENCE, wait_until

FIRST, SECOND, RENEWED = "1" * 32, "2" * 32, "3" * 32
EU = b'{"region": "EU"}'
API_KEYS = {key_hash(FIRST): "Contoso", key_hash(SECOND): "Fabrikam", key_hash(RENEWED): "Contoso"}


def list_senders(*, are_known: bool) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    yield {"X_Api_Key": FIRST}, {"X_Api_Key": SECOND}
    if not are_known:
        yield {"Authorization": basic("one", "x")}, {"Authorization": basic("two", "x")}
        yield {}, {"X_Api_Key": SECOND}


@pytest.mark.parametrize(
    ("api_keys", "first", "second"),
    [
        *((API_KEYS, *senders) for senders in list_senders(are_known=True)),
        *(({}, *senders) for senders in list_senders(are_known=False)),
    ],
)
def test_two_senders_can_use_the_same_key(
    box: Box, api_keys: dict[str, str], first: dict[str, str], second: dict[str, str]
) -> None:
    location = add_inbox_location(box, adapter=adapters.HttpReceive("/orders", port=0, api_keys=api_keys))
    with serve(box, location) as http:
        for sender, body in [(first, b"{}"), (second, b"{}"), (first, b"{}"), (second, b'{"n": 1}')]:
            status = send_request(http, body, Idempotency_Key="order-1", **sender)[0].status
            assert status == (422 if body != b"{}" else 202)
    assert box.count("inbox") == 2


def test_a_party_keeps_its_keys_with_another_api_key(box: Box) -> None:
    location = add_inbox_location(box, adapter=adapters.HttpReceive("/orders", port=0, api_keys=API_KEYS))
    with serve(box, location) as http:
        for api_key in (FIRST, RENEWED):
            assert send_request(http, Idempotency_Key="order-1", X_Api_Key=api_key)[0].status == 202
    assert box.count("inbox") == 1


def test_a_sender_does_not_get_the_response_of_another_sender(box: Box, start_host: StartHost) -> None:
    receive = adapters.HttpReceive("/quotes", port=0, api_keys=API_KEYS, response_timeout=PATIENCE)
    make_location_two_way(box, add_inbox_location(box, pipeline=pipelines.Json(promote=PROMOTE), adapter=receive))
    box.add_port("Pricing", "Orders.Region == 'EU'")
    make_two_way(box, "Pricing")
    answers = iter([b"for the first", b"for the second"])
    instance = start_host(AnsweringAdapter(lambda body: next(answers)))
    wait_until(lambda: instance.http.ports, what="the listener")

    def ask(api_key: str) -> bytes:
        connection = HTTPConnection("127.0.0.1", instance.http.ports[0], timeout=PATIENCE)
        connection.request("POST", "/quotes", EU, {"X-Api-Key": api_key, "Idempotency-Key": "order-1"})
        content = connection.getresponse().read()
        connection.close()
        return content

    asked = [FIRST, SECOND, FIRST, SECOND]
    assert [ask(api_key) for api_key in asked] == [b"for the first", b"for the second"] * 2
