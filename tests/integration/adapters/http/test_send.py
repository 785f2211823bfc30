"""The HTTP adapter of send ports sends requests to real servers on the loopback interface."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import trustme

from postroom import adapters, secret
from postroom.adapters.contract import ReceivedResponse, SolicitAdapter
from postroom.conformance.send_adapters import ChunkedBody, DeliveringAdapterConformance, Destination, attempt
from postroom.errors import DeliveryFailure, DeliveryRefused, SecretUnavailable
from postroom.message import Message, Part
from postroom.system_properties import HTTP
from tests.support.http_receiver import Handler, HttpReceiver, http_receiver
from tests.support.waiting import PATIENCE, wait_until


@dataclass
class Endpoint:
    receiver: HttpReceiver
    definition: adapters.SendDefinition

    def read_received(self) -> list[bytes]:
        return [request.body for request in self.receiver.accepted]

    def break_down(self) -> None:
        self.receiver.stop()

    def repair(self) -> None:
        self.receiver.start()


@pytest.fixture
def receiver() -> Iterator[HttpReceiver]:
    with http_receiver() as running:
        yield running


class TestHttp(DeliveringAdapterConformance):
    @pytest.fixture
    def destination(self, receiver: HttpReceiver) -> Destination:
        return Endpoint(receiver, adapters.Http(receiver.url, timeout=PATIENCE))


def opened(definition: adapters.Http, home: Path = Path("/")) -> adapters.SendAdapter:
    adapter = adapters.build(definition, home)
    adapter.open()
    return adapter


def test_another_message_of_the_same_instance_has_another_idempotency_key(receiver: HttpReceiver) -> None:
    """An instance that was resumed with another body has another message. The receiver must not drop it as a repeat."""
    adapter = opened(adapters.Http(receiver.url))
    one = attempt()
    for body in (b"wrong", b"corrected"):
        adapter.send(Message.of(body), one)
    adapter.close()
    assert len({request.headers["Idempotency-Key"] for request in receiver.accepted}) == 2


def test_a_request_has_headers_with_the_message_and_the_attempt(receiver: HttpReceiver) -> None:
    adapter = opened(adapters.Http(f"{receiver.url}?a=b", headers={"X-Source": "postroom", "User-Agent": "me"}))
    part = Part(body=ChunkedBody((b"<a/>",)), content_type="application/xml", charset="utf-8")
    message = Message(parts=(part,))
    first = attempt()
    adapter.send(message, first)
    adapter.send(message, replace(first, number=2))
    adapter.send(message, attempt())
    adapter.close()

    requests = receiver.accepted
    assert {(request.method, request.path) for request in requests} == {("POST", "/orders?a=b")}
    assert {request.headers["Postroom-Message-Id"] for request in requests} == {str(message.message_id)}
    keys = [request.headers["Idempotency-Key"] for request in requests]
    assert keys[0] == keys[1] == f"{first.instance_id}.{message.message_id}" != keys[2]
    assert [request.headers["Postroom-Attempt"] for request in requests] == ["1", "2", "1"]
    headers = requests[0].headers
    assert headers["Content-Type"] == "application/xml; charset=utf-8"
    assert headers["Content-Length"] == "4"
    assert "Transfer-Encoding" not in headers
    assert (headers["X-Source"], headers["User-Agent"]) == ("postroom", "me")


def test_secrets_are_read_again_for_each_message(
    receiver: HttpReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    headers = {
        "Authorization": secret(file=token, prefix="Bearer "),
        "X-API-Key": secret(env="POSTROOM_TEST_KEY"),
    }
    adapter = opened(adapters.Http(receiver.url, headers=headers))
    monkeypatch.setenv("POSTROOM_TEST_KEY", "k")
    with pytest.raises(SecretUnavailable, match="cannot be read") as missing:
        adapter.send(Message.of(b"x"), attempt())
    assert missing.value.can_retry
    for content in ("one\n", "two"):
        token.write_text(content)
        adapter.send(Message.of(b"x"), attempt())
    token.write_text("three\nX-Evil: yes\n")
    with pytest.raises(SecretUnavailable, match="line break") as invalid:
        adapter.send(Message.of(b"x"), attempt())
    assert "three" not in str(invalid.value)
    adapter.close()
    assert [request.headers["Authorization"] for request in receiver.accepted] == ["Bearer one", "Bearer two"]
    assert {request.headers["X-API-Key"] for request in receiver.accepted} == {"k"}


def test_the_login_of_a_proxy_is_a_secret(receiver: HttpReceiver, tmp_path: Path) -> None:
    url = tmp_path / "proxy"
    with http_receiver() as proxy:
        adapter = opened(adapters.Http(receiver.url, proxy=secret(file=url)))
        for login in ("scott:tiger", "anna:p%40ss"):
            url.write_text(proxy.url.replace("//", f"//{login}@"))
            adapter.send(Message.of(b"x"), attempt())
        url.write_text("tiger")
        with pytest.raises(DeliveryFailure) as failure:
            adapter.send(Message.of(b"x"), attempt())
        assert "tiger" not in str(failure.value)
        adapter.close()
    sent = [base64.b64decode(request.headers["proxy-authorization"].split()[1]) for request in proxy.accepted]
    assert sent == [b"scott:tiger", b"anna:p@ss"]


def test_a_declared_content_type_overrides_that_of_the_message(receiver: HttpReceiver) -> None:
    adapter = opened(adapters.Http(receiver.url, headers={"content-type": "text/plain"}))
    adapter.send(Message.of(b"x", content_type="application/json"), attempt())
    adapter.close()
    assert receiver.accepted[0].headers["content-type"] == "text/plain"


def test_a_content_type_cannot_add_a_header(receiver: HttpReceiver) -> None:
    adapter = opened(adapters.Http(receiver.url))
    adapter.send(Message.of(b"x", content_type="text/plain\r\nX-Evil: yes"), attempt())
    adapter.close()
    assert "X-Evil" not in receiver.accepted[0].headers
    assert receiver.accepted[0].headers["Content-Type"] == "application/octet-stream"


def test_a_server_that_fails_three_times_gets_the_message_at_the_fourth(receiver: HttpReceiver) -> None:
    receiver.fail(3, text="<h1>so\n busy</h1>")
    adapter = opened(adapters.Http(receiver.url))
    message = Message.of(b"patience")
    for number in (1, 2, 3):
        with pytest.raises(DeliveryFailure, match="503") as caught:
            adapter.send(message, attempt(number))
        assert caught.value.why == "<h1>so busy</h1>"
    adapter.send(message, attempt(4))
    adapter.close()
    assert [request.body for request in receiver.accepted] == [b"patience"]
    assert len(receiver.requests) == 4


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_every_2xx_response_is_a_success(receiver: HttpReceiver, status: int) -> None:
    receiver.behave = lambda handler: handler.answer(status)
    adapter = opened(adapters.Http(receiver.url))
    adapter.send(Message.of(b"x"), attempt())
    adapter.close()
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("status", [400, 401, 404, 408, 410, 422, 429, 500, 502, 504])
def test_every_other_response_is_retried_by_the_policy_of_the_port(receiver: HttpReceiver, status: int) -> None:
    receiver.behave = lambda handler: handler.answer(status, b"no")
    adapter = opened(adapters.Http(receiver.url))
    with pytest.raises(DeliveryFailure, match=str(status)):
        adapter.send(Message.of(b"x"), attempt())
    adapter.close()
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(receiver: HttpReceiver, status: int) -> None:
    receiver.behave = lambda handler: handler.answer(status, Location="http://127.0.0.1:1/elsewhere")
    adapter = opened(adapters.Http(receiver.url))
    with pytest.raises(DeliveryFailure) as caught:
        adapter.send(Message.of(b"x"), attempt())
    adapter.close()
    assert "elsewhere" in caught.value.hint
    assert len(receiver.requests) == 1


def test_an_attempt_fails_after_the_timeout_if_the_server_does_not_answer(receiver: HttpReceiver) -> None:
    receiver.behave = Handler.hang
    adapter = opened(adapters.Http(receiver.url, timeout=0.2))
    with pytest.raises(DeliveryFailure) as caught:
        adapter.send(Message.of(b"x"), attempt())
    assert caught.value.why.lower().startswith("read timed out")
    receiver.behave = Handler.accept

    def is_sent() -> bool:
        """Send again. On a slow machine the answer may take longer than the timeout."""
        with suppress(DeliveryFailure):
            adapter.send(Message.of(b"x"), attempt(2))
            return True
        return False

    wait_until(is_sent, what="an answer in time")
    adapter.close()
    assert receiver.accepted


def test_an_attempt_fails_after_the_timeout_if_the_server_stops_reading(receiver: HttpReceiver) -> None:
    receiver.behave = Handler.ignore
    adapter = opened(adapters.Http(receiver.url, timeout=0.2))
    with pytest.raises(DeliveryFailure):
        adapter.send(Message.of(ChunkedBody((bytes(1 << 20),) * 32)), attempt())
    adapter.close()


def test_an_attempt_fails_after_the_timeout_if_the_head_of_the_response_drips(receiver: HttpReceiver) -> None:
    def drip_head(handler: Handler) -> None:
        handler.take()
        handler.drip(b"HTTP/1.1 200 OK\r\nX-Drip: ")

    receiver.behave = drip_head
    adapter = opened(adapters.Http(receiver.url, timeout=0.5))
    with pytest.raises(DeliveryFailure) as caught:
        adapter.send(Message.of(b"x"), attempt())
    adapter.close()
    assert "timed out" in caught.value.why.lower()


def test_an_attempt_fails_after_the_timeout_if_the_head_of_a_tls_response_drips(authority: Path) -> None:
    with http_receiver(server_certificate(authority)) as receiver:
        receiver.behave = lambda handler: handler.drip(b"HTTP/1.1 200 OK\r\nX-Drip: ")
        adapter = opened(adapters.Http(receiver.url, ca_file="ca.pem", timeout=1), authority)
        with pytest.raises(DeliveryFailure) as caught:
            adapter.send(Message.of(b"x"), attempt())
        adapter.close()
    assert "timed out" in caught.value.why.lower()


def test_an_attempt_fails_after_the_timeout_if_the_answer_of_a_proxy_drips(receiver: HttpReceiver) -> None:
    receiver.behave = lambda handler: handler.drip(b"HTTP/1.1 200 OK\r\nX-Drip: ")
    adapter = opened(adapters.Http("https://example.com/", proxy=receiver.url, timeout=0.5))
    with pytest.raises(DeliveryFailure) as caught:
        adapter.send(Message.of(b"x"), attempt())
    adapter.close()
    assert "timed out" in caught.value.why.lower()


def test_an_attempt_fails_after_the_timeout_if_the_server_reads_too_slowly(receiver: HttpReceiver) -> None:
    receiver.behave = Handler.read_slowly
    adapter = opened(adapters.Http(receiver.url, timeout=0.5))
    with pytest.raises(DeliveryFailure) as caught:
        adapter.send(Message.of(ChunkedBody((bytes(1 << 20),) * 32)), attempt())
    adapter.close()
    assert "timed out" in caught.value.why.lower()


def test_a_2xx_response_confirms_the_message_although_its_body_drips(receiver: HttpReceiver) -> None:
    def drip_body(handler: Handler) -> None:
        handler.take()
        handler.drip(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n")

    receiver.behave = drip_body
    adapter = opened(adapters.Http(receiver.url, timeout=PATIENCE))
    adapter.send(Message.of(b"x"), attempt())
    # The connection with the rest of the body is not used again.
    receiver.behave = Handler.accept
    adapter.send(Message.of(b"y"), attempt())
    adapter.close()
    assert [request.body for request in receiver.accepted] == [b"y"]


def test_the_status_of_a_failure_is_reported_although_its_body_drips(receiver: HttpReceiver) -> None:
    receiver.behave = lambda handler: handler.drip(b"HTTP/1.1 503 Busy\r\nContent-Length: 60000\r\n\r\n")
    adapter = opened(adapters.Http(receiver.url, timeout=0.5))

    def is_status_reported() -> bool:
        """Send. On a slow machine the status may take longer than the timeout."""
        with pytest.raises(DeliveryFailure) as caught:
            adapter.send(Message.of(b"x"), attempt())
        return "responded with 503 Busy" in caught.value.what

    wait_until(is_status_reported)
    adapter.close()


@pytest.mark.parametrize("count", [0, 1_000, 500_000])
def test_an_attempt_fails_if_the_server_closes_the_connection_during_the_body(
    receiver: HttpReceiver, count: int
) -> None:
    receiver.behave = lambda handler: handler.close_after(count)
    adapter = opened(adapters.Http(receiver.url))
    with pytest.raises(DeliveryFailure):
        adapter.send(Message.of(ChunkedBody((b"y" * 100_000,) * 10)), attempt())
    receiver.behave = Handler.accept
    adapter.send(Message.of(b"x"), attempt(2))
    adapter.close()
    assert [request.body for request in receiver.accepted] == [b"x"]


def test_a_2xx_response_before_the_end_of_the_message_is_a_failure(receiver: HttpReceiver) -> None:
    def respond_too_early(handler: Handler) -> None:
        handler.rfile.read(1_000)
        handler.respond(200)
        handler.close_after(1_000)

    receiver.behave = respond_too_early
    adapter = opened(adapters.Http(receiver.url, timeout=5))
    with pytest.raises(DeliveryFailure):
        adapter.send(Message.of(ChunkedBody((b"y" * (1 << 20),) * 32)), attempt())
    adapter.close()


def test_a_response_that_ends_after_its_status_is_valid(receiver: HttpReceiver) -> None:
    def close_after_status(handler: Handler) -> None:
        handler.take()
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nten bytes")
        handler.wfile.flush()
        handler.close_after(0)

    receiver.behave = close_after_status
    adapter = opened(adapters.Http(receiver.url))
    adapter.send(Message.of(b"x"), attempt())
    receiver.behave = lambda handler: handler.answer(200, b"z" * 1_000_000)
    for _ in range(3):
        adapter.send(Message.of(b"x"), attempt())
    adapter.close()


def test_the_proxies_of_the_environment_are_used_only_if_selected(
    receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with http_receiver() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        for setting in (None, "environment", proxy.url):
            adapter = opened(adapters.Http(receiver.url, proxy=setting))
            adapter.send(Message.of(str(setting).encode()), attempt())
            adapter.close()
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        adapter = opened(adapters.Http(receiver.url, proxy="environment"))
        adapter.send(Message.of(b"around it"), attempt())
        adapter.close()
    assert [request.body for request in receiver.accepted] == [b"None", b"around it"]
    assert [request.path for request in proxy.accepted] == [receiver.url] * 2


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the certificate of a new authority and a certificate for 127.0.0.1."""
    folder = tmp_path_factory.mktemp("authority")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    return folder


def server_certificate(authority: Path) -> ssl.SSLContext:
    certificate = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.load_cert_chain(authority / "server.pem")
    return certificate


def test_a_certificate_is_verified(authority: Path) -> None:
    with http_receiver(server_certificate(authority)) as receiver:
        trusting = opened(adapters.Http(receiver.url, ca_file="ca.pem"), authority)
        trusting.send(Message.of(b"secret"), attempt())
        trusting.close()

        wrong_name = opened(adapters.Http(receiver.url.replace("127.0.0.1", "localhost"), ca_file="ca.pem"), authority)
        for distrusting in (opened(adapters.Http(receiver.url)), wrong_name):
            with pytest.raises(DeliveryFailure) as caught:
                distrusting.send(Message.of(b"never"), attempt())
            assert "certificate" in caught.value.why.lower()
            distrusting.close()

        without = opened(adapters.Http(receiver.url, ca_file="missing.pem"), authority)
        with pytest.raises(DeliveryFailure) as caught:
            without.send(Message.of(b"never"), attempt())
        without.close()
    assert [request.body for request in receiver.accepted] == [b"secret"]


def solicit(definition: adapters.Http) -> ReceivedResponse:
    adapter = opened(definition)
    assert isinstance(adapter, SolicitAdapter)
    try:
        return adapter.solicit(Message.of(b"a request"), attempt())
    finally:
        adapter.close()


def test_a_solicited_response_has_the_body_the_status_and_the_headers(receiver: HttpReceiver) -> None:
    body = b"x" * 200_000
    receiver.behave = lambda handler: handler.answer(
        201, body, **{"Content-Type": "text/plain", "X-Price": "5", "Set-Cookie": "secret"}
    )
    response = solicit(adapters.Http(receiver.url))
    assert b"".join(response.body.chunks()) == body
    assert response.context[HTTP.ResponseStatusCode] == 201
    assert response.context[HTTP.ContentType] == "text/plain"
    headers = str(response.context[HTTP.InboundHttpHeaders])
    assert "X-Price: 5" in headers
    assert "secret" not in headers
    assert receiver.requests[0].body == b"a request"


def test_a_solicited_response_other_than_2xx_is_a_failed_attempt(receiver: HttpReceiver) -> None:
    receiver.behave = lambda handler: handler.answer(500, b"no price")
    with pytest.raises(DeliveryFailure, match="responded with 500") as failure:
        solicit(adapters.Http(receiver.url))
    assert failure.value.why == "no price"


def test_a_port_chooses_which_statuses_are_responses_and_which_headers_are_passed_on(receiver: HttpReceiver) -> None:
    receiver.behave = lambda handler: handler.answer(404, b"no price", ETag="1", Server="secret")
    definition = adapters.Http(receiver.url, response_statuses=(404, 409), pass_headers=("etag", "Retry-After"))
    response = solicit(definition)
    assert b"".join(response.body.chunks()) == b"no price"
    assert response.context[HTTP.ResponseStatusCode] == 404
    assert response.context[HTTP.UserHttpHeaders] == "etag: 1"
    assert HTTP.UserHttpHeaders not in solicit(adapters.Http(receiver.url, response_statuses=(404,))).context
    adapter = opened(definition)
    with pytest.raises(DeliveryFailure, match="responded with 404"):
        adapter.send(Message.of(b"one-way"), attempt())
    adapter.close()


def test_a_solicited_response_that_ends_early_is_a_failed_attempt(receiver: HttpReceiver) -> None:
    def close_half_way(handler: Handler) -> None:
        handler.take()
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        handler.close_connection = True

    receiver.behave = close_half_way
    with pytest.raises(DeliveryFailure, match="is incomplete"):
        solicit(adapters.Http(receiver.url))


def test_a_solicited_response_that_is_sent_too_slowly_is_a_failed_attempt(receiver: HttpReceiver) -> None:
    def drip(handler: Handler) -> None:
        handler.take()
        handler.drip(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")

    receiver.behave = drip

    def is_response_incomplete() -> bool:
        """Solicit. On a slow machine the head of the response may take longer than the timeout."""
        with pytest.raises(DeliveryFailure) as caught:
            solicit(adapters.Http(receiver.url, timeout=0.3))
        return "is incomplete" in str(caught.value)

    wait_until(is_response_incomplete)


def test_a_solicited_response_that_is_too_large_is_refused(
    receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom.adapters.http.send._MAX_SOLICITED", 10)
    receiver.behave = lambda handler: handler.answer(200, b"x" * 11)
    with pytest.raises(DeliveryRefused, match="more than 10 bytes"):
        solicit(adapters.Http(receiver.url))
