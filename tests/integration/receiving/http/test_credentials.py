"""HTTP requests without valid credentials are answered with 401, and nothing of them is stored."""

from __future__ import annotations

import base64
import socket
import threading
from contextlib import ExitStack

import pytest

from postroom import adapters
from postroom.operations.ports import receive_locations as locations
from postroom.pipelines.components import key_hash
from postroom.ports.receive_locations import ReceiveLocation, read_receive_locations
from postroom.receiving.http.locations import HttpLocations
from postroom.secrets.credentials import PasswordCheck
from postroom.system_properties import BTS, HTTP
from tests.integration.receiving.http.test_receive import publish, send_request, serve
from tests.support.box import Box
from tests.support.host_settings import set_trust
from tests.support.inbox_location import add_inbox_location
from tests.support.waiting import PATIENCE, wait_until

KEY = "0123456789abcdef0123456789abcdef"
PASSWORD = "correct horse"


def basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


@pytest.fixture
def location(box: Box) -> ReceiveLocation:
    adapter = adapters.HttpReceive(
        "/orders",
        port=0,
        api_keys={key_hash(KEY): "Contoso"},
        users={"initech": adapters.password_hash(PASSWORD)},
    )
    return add_inbox_location(box, adapter=adapter)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X_Api_Key": "wrong"},
        {"X_Api_Key": key_hash(KEY)},
        {"Authorization": basic("initech", "wrong")},
        {"Authorization": basic("initech", "")},
        {"Authorization": basic("nobody", PASSWORD)},
        {"Authorization": "Basic no-base64"},
        {"Authorization": f"Bearer {KEY}"},
    ],
)
def test_a_request_without_valid_credentials_is_answered_with_401(
    box: Box, location: ReceiveLocation, headers: dict[str, str]
) -> None:
    with serve(box, location) as http:
        answer, content = send_request(http, Idempotency_Key="order-1", **headers)
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == 'ApiKey realm="Postroom", Basic realm="Postroom"'
    assert content["error"].startswith("This receive location needs an API key in the header X-API-Key or a user name")
    assert box.count("inbox") == 0
    assert box.count("receipts") == 0


def test_two_api_keys_are_rejected(box: Box, location: ReceiveLocation) -> None:
    """A proxy may have checked the other one."""
    with serve(box, location) as http:
        assert send_request(http, X_Api_Key=KEY, x_api_key=KEY)[0].status == 401
    assert box.count("inbox") == 0


def test_the_body_of_an_unauthenticated_request_is_not_read(box: Box, location: ReceiveLocation) -> None:
    head = b"POST /orders HTTP/1.1\r\nHost: here\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n"
    with serve(box, location) as http, socket.create_connection(("127.0.0.1", http.ports[0]), PATIENCE) as client:
        client.sendall(head)
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 401 Unauthorized\r\n")


@pytest.mark.parametrize(
    ("headers", "party"),
    [({"X_Api_Key": KEY}, "Contoso"), ({"Authorization": basic("initech", PASSWORD)}, "initech")],
)
def test_the_sender_of_an_authenticated_request_is_the_originator_of_its_message(
    box: Box, location: ReceiveLocation, headers: dict[str, str], party: str
) -> None:
    """The receive port requires an originator, and a send port filters by the party."""
    box.add_port("Theirs", f"BTS.OriginatorPID == '{party}'")
    set_trust(box.connection, box.host().host_id)
    box.set_authentication("keep")
    location = next(found for found in read_receive_locations(box.connection) if found.name == location.name)
    with serve(box, location) as http:
        for _ in range(2):
            assert send_request(http, **headers)[0].status == 202
    publish(box, location)
    assert box.queued() == {"Theirs": 2}
    assert {(one.originator_sid, one.originator_pid) for one in box.messages()} == {(party, party)}
    context = box.messages()[0].context
    assert KEY not in str(context[HTTP.InboundHttpHeaders])
    assert PASSWORD not in str(context)


def test_a_host_that_is_not_trusted_cannot_name_the_sender(box: Box, location: ReceiveLocation) -> None:
    box.add_port("Everything", "exists(Region)")
    with serve(box, location) as http:
        assert send_request(http, X_Api_Key=KEY)[0].status == 202
    publish(box, location)
    context = box.messages()[0].context
    assert context.get(BTS.OriginatorPID) == "Guest"


def test_a_replaced_key_is_rejected_from_the_next_request_on(box: Box, location: ReceiveLocation) -> None:
    def replace_key(http: HttpLocations) -> None:
        changed = adapters.HttpReceive("/orders", port=0, api_keys={key_hash("another key"): "Contoso"})
        http.serve([add_inbox_location(box, name="other", adapter=changed)])

    with serve(box, location) as http:
        assert send_request(http, X_Api_Key=KEY)[0].status == 202
        replace_key(http)
        assert send_request(http, X_Api_Key=KEY)[0].status == 401
        assert send_request(http, X_Api_Key="another key")[0].status == 202


def test_an_unauthenticated_request_does_not_learn_that_the_location_is_disabled(
    box: Box, location: ReceiveLocation
) -> None:
    locations.disable(box.connection, location.name)
    location = next(found for found in read_receive_locations(box.connection) if found.name == location.name)
    with serve(box, location) as http:
        assert send_request(http)[0].status == 401
        assert send_request(http, X_Api_Key=KEY)[0].status == 503


def test_wrong_passwords_of_one_address_do_not_delay_the_first_log_in_of_another(
    box: Box, location: ReceiveLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified: list[str] = []
    may_continue = threading.Event()
    verify = PasswordCheck.verify

    def wait_and_verify(self: PasswordCheck, stored: str | None, password: str) -> bool:
        verified.append(password)
        assert may_continue.wait(PATIENCE)
        return verify(self, stored, password)

    monkeypatch.setattr(PasswordCheck, "verify", wait_and_verify)
    head = "POST /orders HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\nAuthorization: {}\r\n\r\n{{}}"
    with serve(box, location) as http, ExitStack() as stack:

        def send(address: str, password: str) -> socket.socket:
            client = socket.create_connection(("127.0.0.1", http.ports[0]), PATIENCE, source_address=(address, 0))
            before = http.counts.in_progress[location.name]
            client.sendall(head.format(basic("initech", password)).encode())
            wait_until(lambda: http.counts.in_progress[location.name] > before, what="a request in progress")
            return stack.enter_context(client)

        wrong = [send("127.0.0.1", f"wrong {number}") for number in range(20)]
        correct = send("127.0.0.2", PASSWORD)
        may_continue.set()
        assert correct.recv(1 << 16).startswith(b"HTTP/1.1 202 ")
        for client in wrong:
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 401 ")
    assert verified.index(PASSWORD) == 2  # after those that were running
    assert len(verified) == 21
