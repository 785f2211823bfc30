"""ACC-40 … 42: HTTP clients wait for responses that come back through the MessageBox. Real sockets and processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection, RemoteDisconnected

import pytest

from tests.support.http_receiver import Handler, HttpReceiver, http_receiver
from tests.support.installation import Installation, Process
from tests.support.reserved_port import is_listening, reserve_port
from tests.support.waiting import PATIENCE, wait_until

Answer = tuple[int, bytes]


class Quotes:
    """A running host with the two-way location /quotes and the two-way send port Pricing."""

    def __init__(self, installation: Installation, receiver: HttpReceiver, *, port: int, timeout: float) -> None:
        self._installation = installation
        self._pool = ThreadPoolExecutor(50)
        self.port = port
        installation.apply(
            f"""
            app.receive_port("Quotes", two_way=True).location(
                "quotes",
                adapters.HttpReceive("/quotes", port={self.port}, response_timeout={timeout}),
                pipeline=pipelines.Json(promote=PROMOTE),
            )
            app.send_port(
                "Pricing",
                adapters.Http("{receiver.url}"),
                two_way=True,
                filter=(BTS.ReceivePortName == "Quotes") & (Region == "EU"),
                receive_pipeline=pipelines.Json(promote=PROMOTE),
                retry=Retry(count=0),
            )
            app.send_port("Prices", adapters.File("prices"), filter=BTS.SPName == "Pricing")
            """
        )
        self.host = self.start_host()

    def start_host(self) -> Process:
        host = self._installation.start_host()
        wait_until(lambda: is_listening(self.port), what="the listener")
        return host

    def ask(self, **request: object) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("POST", "/quotes", json.dumps({"region": "EU", **request}))
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def start_call(self, **request: object) -> Future[Answer]:
        return self._pool.submit(lambda: self.ask(**request))

    def close(self) -> None:
        self._pool.shutdown()


@contextmanager
def run_quotes(installation: Installation, *, timeout: float = PATIENCE) -> Iterator[tuple[Quotes, HttpReceiver]]:
    with http_receiver() as receiver, reserve_port() as port:
        receiver.behave = answer_with_price
        quotes = Quotes(installation, receiver, port=port, timeout=timeout)
        try:
            yield quotes, receiver
        finally:
            receiver.released.set()
            quotes.close()


def answer_with_price(handler: Handler) -> None:
    asked = json.loads(handler.take().body)
    handler.respond(200, json.dumps({"region": "EU", "price": asked.get("number", 0) * 2}).encode())


def answer_after_release(handler: Handler) -> None:
    """Answer when the test sets ``released``."""
    handler.take()
    handler.receiver.released.wait()
    handler.respond(200, b'{"price": 1}')


@pytest.fixture(autouse=True)
def check_nothing_is_left(installation: Installation) -> Iterator[None]:
    yield
    waiting = installation.run_json("subscription", "list")
    assert [found for found in waiting if found["instance_id"]] == []


def test_fifty_concurrent_callers_get_their_own_responses_and_a_third_port_gets_copies(
    installation: Installation,
) -> None:
    with run_quotes(installation) as (quotes, _):
        calls = [quotes.start_call(number=number) for number in range(50)]
        answers = [call.result(PATIENCE) for call in calls]
        assert [status for status, _ in answers] == [200] * 50
        assert [json.loads(body)["price"] for _, body in answers] == [number * 2 for number in range(50)]
        copies = installation.wait_for_files("prices", 50)
        assert sorted(json.loads(copy)["price"] for copy in copies) == [number * 2 for number in range(50)]
        wait_until(lambda: installation.run_json("instance", "list") == [], what="no instances")


def test_a_caller_without_an_answer_in_time_gets_a_fault_and_the_late_response_is_suspended(
    installation: Installation,
) -> None:
    with run_quotes(installation, timeout=0.2) as (quotes, receiver):
        receiver.behave = answer_after_release
        status, body = quotes.ask()
        assert status == 504
        assert b"did not come in time" in body
        receiver.released.set()
        [late] = wait_until(lambda: installation.list_suspended(error="CORRELATION"), what="the late response")
        shown = installation.run("instance", "resume", late["instance_id"], exit_code=5)
        assert "cannot be resumed" in shown


def test_a_caller_gets_a_502_when_the_receiver_fails(installation: Installation) -> None:
    """NRF-09, RR-12: so does one whose request has no subscriber."""
    with run_quotes(installation) as (quotes, receiver):
        receiver.behave = lambda handler: handler.answer(500, b"no price")
        assert quotes.ask()[0] == 502
        assert wait_until(lambda: installation.list_suspended(error="DELIVERY"), what="the request")
        assert quotes.ask(region="US")[0] == 502
        unroutable = installation.list_suspended(error="ROUTING")
        assert sorted(str(one["service"]) for one in unroutable) == ["None", "quotes"], "the request and its report"
        assert unroutable == installation.list_suspended("not-resumable", error="ROUTING")


def test_the_response_to_a_killed_host_is_suspended_and_later_callers_are_answered(installation: Installation) -> None:
    """RR-06: another host instance sends the request again after the first one was killed."""
    with run_quotes(installation) as (quotes, receiver):
        receiver.behave = answer_after_release
        call = quotes.start_call(number=1)
        wait_until(lambda: receiver.requests, what="the request")
        quotes.host.kill()
        with pytest.raises((RemoteDisconnected, ConnectionError)):
            call.result(PATIENCE)
        receiver.behave = answer_with_price
        receiver.released.set()
        quotes.start_host()
        assert quotes.ask(number=2) == (200, b'{"region": "EU", "price": 4}')
        [lost] = wait_until(lambda: installation.list_suspended(error="CORRELATION"), what="the response")
        assert "could not be correlated to an existing request" in lost["error_description"]
        assert sorted(json.loads(copy)["price"] for copy in installation.wait_for_files("prices", 2)) == [2, 4]
