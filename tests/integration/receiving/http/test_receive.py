"""HTTP one-way receive: 202 only after the commit. With any other status the sender still has to send (RCV-24)."""

from __future__ import annotations

import base64
import errno
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
import trustme

from postroom import Schedule, Throttling, adapters
from postroom.agent.routing.table import RoutingTable
from postroom.hosts.host_instance import HostInstance, HostSettings
from postroom.message import FRAGMENT_SIZE
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Login, connect
from postroom.messagebox.intake import inbox
from postroom.messagebox.intake.numbered_interchanges import read_numbered
from postroom.messagebox.storage.stored_responses import StoredResponses
from postroom.messagebox.subscriptions import ServiceSubscriptions
from postroom.operations.ports import receive_locations as locations
from postroom.pipelines.components import key_hash
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.http.locations import _CONNECTIONS, HttpLocations
from postroom.receiving.inbox_receive_adapter import InboxReceiveAdapter
from postroom.spark.receive.task import SparkReceiveTask
from postroom.spark.worker import close_worker
from postroom.system_properties import BTS, HTTP
from postroom.temporary_bodies import Spool
from postroom.two_way.callers import Callers, RequestPublisher
from tests.support.box import Box
from tests.support.host_settings import set_thresholds
from tests.support.inbox_location import add_inbox_location
from tests.support.simulated_load import set_load
from tests.support.waiting import PATIENCE, wait_until

ORDER = b'{"region": "EU"}'


@pytest.fixture
def location(box: Box) -> ReceiveLocation:
    # Port 0 is any free port. Applications cannot declare it.
    return add_inbox_location(box, adapter=adapters.HttpReceive("/orders", port=0, max_bytes=40 * FRAGMENT_SIZE))


@contextmanager
def serve(box: Box, *served: ReceiveLocation, url: str | None = None) -> Iterator[HttpLocations]:
    login = partial(connect, url or box.url, user=box.host().role_name)
    host = box.host()
    callers = Callers(
        connect=login,
        subscriptions=ServiceSubscriptions(host, ServiceClass.MESSAGING_IN_PROCESS),
        stored=StoredResponses(host.name),
        host_instance=0,
    )
    requests = RequestPublisher(host=host, host_instance=0, callers=callers, routing=RoutingTable())
    http = HttpLocations(connect=login, host_id=host.host_id, home=Path("/nowhere"), requests=requests, answer_within=1)
    http.serve(list(served))
    try:
        yield http
    finally:
        http.close(5)


def send_request(
    http: HttpLocations, body: Any = ORDER, *, method: str = "POST", path: str = "/orders", **headers: str
) -> tuple[HTTPResponse, dict[str, Any]]:
    connection = HTTPConnection("127.0.0.1", http.ports[0], timeout=PATIENCE)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body=body, headers=sent, encode_chunked=not isinstance(body, bytes | None))
    answer = connection.getresponse()
    content = json.loads(answer.read())
    connection.close()
    return answer, content


def publish(box: Box, location: ReceiveLocation) -> None:
    """Publish the inbox rows as the stream of the location does."""
    login = Login(url=box.url, user=box.host().role_name)
    with connect(box.url, user=login.user) as connection:
        InboxReceiveAdapter(connection, location, connect=partial(login.connect, "inbox")).scan()
    rows = read_numbered(box.connection, location.location_id, 0, 1 << 60)
    SparkReceiveTask(location=location, home=Path(), login=login).receive(rows)
    close_worker(login)


def test_an_unreadable_location_does_not_affect_other_locations(
    box: Box, location: ReceiveLocation, caplog: pytest.LogCaptureFixture
) -> None:
    broken = replace(location, name="broken").replace_settings(adapter={**location.adapter_json, "speed": 5})
    with serve(box, broken, location) as http:
        http.serve([broken, location])
        answer, _ = send_request(http)
    assert answer.status == 202
    [warning] = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert "receive location 'broken'" in warning
    assert "speed" in warning


def test_the_response_is_202_with_the_interchange_id_after_the_commit(box: Box, location: ReceiveLocation) -> None:
    box.add_port("Everything", "exists(Region)")
    credentials = base64.b64encode(b"ann:secret").decode()
    with serve(box, location) as http:
        answer, content = send_request(
            http,
            path="/orders?batch=7",
            Content_Type="application/json",
            X_Source="shop",
            Authorization=f"Basic {credentials}",
            Cookie="session=secret",
            X_Api_Key="secret-key",
        )
    assert answer.status == 202
    [stored] = box.inbox()
    interchange_id, body = stored.interchange_id, stored.body
    assert content == {"interchange_id": str(interchange_id)}
    assert answer.headers["Postroom-Interchange-Id"] == str(interchange_id)
    assert body == ORDER
    publish(box, location)
    context = box.messages()[0].context
    assert context[BTS.InterchangeID] == str(interchange_id)
    assert context[BTS.InboundTransportType] == "HTTP"
    assert context[HTTP.ContentType] == "application/json"
    assert context[HTTP.RemoteAddress] == "127.0.0.1"
    assert context[HTTP.QueryString] == "batch=7"
    assert context[HTTP.Username] == "ann"
    headers = str(context[HTTP.InboundHttpHeaders]).split("\r\n")
    assert "x-source: shop" in headers
    assert f"x-api-key: sha256:{key_hash('secret-key')}" in headers
    assert not [line for line in headers if "secret" in line or credentials in line]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_large_body_is_streamed_into_fragments(box: Box, location: ReceiveLocation, chunked: bool) -> None:
    content = bytes(number % 251 for number in range(20 * FRAGMENT_SIZE + 11))
    pieces = (content[start : start + 50_000] for start in range(0, len(content), 50_000))
    with serve(box, location) as http:
        answer, _ = send_request(http, pieces if chunked else content)
    assert answer.status == 202
    assert [one.size for one in box.inbox()] == [len(content)]
    assert b"".join(box.inbox_fragments()) == content


def test_slow_uploads_do_not_block_connections_to_the_messagebox(box: Box, location: ReceiveLocation) -> None:
    started, resumed = threading.Semaphore(0), threading.Event()

    def send_slowly() -> Iterator[bytes]:
        yield bytes(3 * FRAGMENT_SIZE)
        started.release()
        assert resumed.wait(PATIENCE)
        yield b"the end"

    statuses: list[int] = []
    with serve(box, location) as http:
        uploads = [
            threading.Thread(target=lambda: statuses.append(send_request(http, send_slowly())[0].status))
            for _ in range(_CONNECTIONS + 1)
        ]
        for upload in uploads:
            upload.start()
        for _ in uploads:
            assert started.acquire(timeout=PATIENCE)
        open_transactions = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'"
        assert send_request(http)[0].status == 202
        assert box.one(open_transactions) == 0
        resumed.set()
        for upload in uploads:
            upload.join(PATIENCE)
    assert statuses == [202] * len(uploads)
    assert [one.size for one in box.inbox()].count(3 * FRAGMENT_SIZE + 7) == len(uploads)


def test_the_response_is_507_without_disk_space_for_the_body(
    box: Box, location: ReceiveLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_no_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Spool, "write", raise_no_space)
    with serve(box, location) as http:
        assert send_request(http)[0].status == 507
    assert box.count("inbox") == 0


def test_an_idempotency_key_identifies_one_interchange(box: Box, location: ReceiveLocation) -> None:
    box.add_port("Everything", "exists(Region)")
    with serve(box, location) as http:
        first, content = send_request(http, Idempotency_Key="order-1")
        again, repeated = send_request(http, Idempotency_Key="order-1")
        assert (first.status, again.status) == (202, 202)
        assert repeated == content
        publish(box, location)
        late, repeated = send_request(http, Idempotency_Key="order-1", X_Attempt="3")
        assert (late.status, repeated) == (202, content)
        _, other = send_request(http, Idempotency_Key="order-2")
        assert other != content
    publish(box, location)
    assert box.queued() == {"Everything": 2}


@pytest.mark.parametrize("is_published", [False, True], ids=["in the inbox", "published"])
@pytest.mark.parametrize("size", [10, 3 * FRAGMENT_SIZE])
def test_an_idempotency_key_with_another_body_is_rejected(
    box: Box, location: ReceiveLocation, is_published: bool, size: int
) -> None:
    box.add_port("Everything", "exists(Region)")
    body = b'{"region": "EU", "note": "%s"}' % (b"x" * size)
    with serve(box, location) as http:
        _, content = send_request(http, body, Idempotency_Key="order-1")
        if is_published:
            publish(box, location)
        for other in ({"body": body.replace(b"EU", b"US")}, {"body": body, "Content_Type": "text/csv"}):
            answer, rejected = send_request(http, **other, Idempotency_Key="order-1")
            assert answer.status == 422
            assert "idempotency key was used for other content" in rejected["error"]
            assert "publish" not in rejected["error"]
        answer, repeated = send_request(http, body, Idempotency_Key="order-1")
        assert (answer.status, repeated) == (202, content)
    publish(box, location)
    assert (box.count("inbox"), box.queued()) == (0, {"Everything": 1})


@pytest.mark.parametrize(
    ("size", "interrupted"), [(10, "store_together"), (3 * FRAGMENT_SIZE, "store_in_inbox")], ids=["small", "large"]
)
def test_a_request_is_rejected_if_another_with_its_key_is_published_before_it_is_stored(
    box: Box, location: ReceiveLocation, monkeypatch: pytest.MonkeyPatch, size: int, interrupted: str
) -> None:
    """The host may be frozen before the insert, after it has checked the key of a large request."""
    box.add_port("Everything", "exists(Region)")
    first = b'{"region": "EU", "note": "%s"}' % (b"x" * size)
    store = getattr(inbox, interrupted)
    with serve(box, location) as http, serve(box, location) as other:

        def publish_another(*arguments: Any, **named: Any) -> Any:
            monkeypatch.undo()
            send_request(other, first, Idempotency_Key="order-1")
            publish(box, location)
            return store(*arguments, **named)

        monkeypatch.setattr(inbox, interrupted, publish_another)
        answer, _ = send_request(http, first.replace(b"EU", b"US"), Idempotency_Key="order-1")
        assert answer.status == 422
        assert send_request(http, first, Idempotency_Key="order-1")[0].status == 202
    assert (box.count("inbox"), box.queued()) == (0, {"Everything": 1})


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ({"path": "/other"}, 404),
        ({"path": "/orders/"}, 404),
        ({"method": "GET", "body": None}, 405),
        ({"method": "PUT"}, 405),
        ({"body": bytes(40 * FRAGMENT_SIZE + 1)}, 413),
        ({"body": iter([bytes(21 * FRAGMENT_SIZE)] * 2)}, 413),
        ({"Idempotency_Key": " "}, 400),
        ({"Idempotency_Key": "x" * 257}, 400),
    ],
)
def test_invalid_requests_are_rejected(
    box: Box, location: ReceiveLocation, request_: dict[str, Any], status: int
) -> None:
    with serve(box, location) as http:
        answer, content = send_request(http, **request_)
        assert answer.status == status
        assert content["error"]
        if status == 405:
            assert answer.headers["Allow"] == "POST"
        assert send_request(http)[0].status == 202
    assert box.count("inbox") == 1


def test_the_response_is_503_while_the_messagebox_is_unavailable(
    box: Box, location: ReceiveLocation, tmp_path: Path
) -> None:
    """DEQ-15."""
    with serve(box, location, url=f"postgresql:///nowhere?host={tmp_path}") as http:
        answer, _ = send_request(http)
    assert answer.status == 503
    assert int(answer.headers["Retry-After"]) > 0


def test_dropped_connections_are_opened_again(box: Box, location: ReceiveLocation) -> None:
    with serve(box, location) as http:
        assert send_request(http)[0].status == 202
        box.connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = %s", (box.host().role_name,)
        )
        assert send_request(http)[0].status == 202


def test_the_response_is_503_while_the_host_is_throttled(box: Box, location: ReceiveLocation) -> None:
    set_thresholds(box.connection, box.host().host_id, Throttling(messages=10, longest_delay=40))
    set_load(box, queued=15)
    with serve(box, location) as http:
        answer, content = send_request(http)
        assert (answer.status, answer.headers["Retry-After"]) == (503, "20")
        assert content == {"error": "The MessageBox is busy: 15 messages are in the queues; the threshold is 10."}
        set_load(box, queued=10)
        wait_until(lambda: send_request(http)[0].status == 202, what="an open location")


def test_a_disabled_location_responds_with_503_and_others_on_its_port_work(box: Box, location: ReceiveLocation) -> None:
    other = add_inbox_location(box, name="other", adapter=adapters.HttpReceive("/other", port=0))
    with serve(box, replace(location, enabled=False), other) as http:
        assert len(http.ports) == 1
        answer, _ = send_request(http)
        assert answer.status == 503
        assert send_request(http, path="/other")[0].status == 202
        http.serve([replace(location, schedule=Schedule(stop="2000-12-31"))])
        assert send_request(http)[1] == {"error": "This receive location is outside its schedule."}
        http.serve([location])
        assert send_request(http)[0].status == 202
        assert send_request(http, path="/other")[0].status == 404
        http.serve([])
        assert http.ports == []


def test_a_location_that_moved_to_another_host_responds_with_503(box: Box, location: ReceiveLocation) -> None:
    with serve(box, location) as http:
        box.set_locations(host_id=box.add_host("Other").host_id)
        assert send_request(http)[0].status == 503
    assert box.count("inbox") == 0


def test_the_response_is_404_if_the_location_is_removed_during_the_request(box: Box, location: ReceiveLocation) -> None:
    statuses: list[int] = []
    with serve(box, location) as http:
        requesting = threading.Thread(target=lambda: statuses.append(send_request(http)[0].status))
        with box.connection.transaction():
            box.delete_all("receive locations")
            requesting.start()
            waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
            wait_until(lambda: box.one(waits) == 1, what="the request to wait for the removal")
        requesting.join()
    assert statuses == [404]
    assert box.count("inbox") == 0


def test_many_concurrent_requests_are_stored_once_each(box: Box, location: ReceiveLocation) -> None:
    answers: list[int] = []
    with serve(box, location) as http:
        threads = [threading.Thread(target=lambda: answers.append(send_request(http)[0].status)) for _ in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == [202] * 30
    assert box.count("inbox") == 30


def test_requests_over_tls_are_accepted(box: Box, tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "certificate.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    adapter = adapters.HttpReceive(
        "/orders", port=0, certificate=tmp_path / "certificate.pem", key=tmp_path / "key.pem"
    )
    location = add_inbox_location(box, adapter=adapter)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with serve(box, location) as http:
        connection = HTTPSConnection("127.0.0.1", http.ports[0], timeout=PATIENCE, context=context)
        connection.request("POST", "/orders", body=ORDER)
        assert connection.getresponse().status == 202
        connection.close()


def test_a_host_instance_serves_its_locations_and_follows_their_state(
    box: Box, location: ReceiveLocation, tmp_path: Path
) -> None:
    instance = HostInstance(box.url, "Default", tmp_path, as_role=True, settings=HostSettings(runs_jobs=False))
    with instance:
        http = instance.http
        wait_until(lambda: http.ports, what="an open port")
        assert send_request(http)[0].status == 202
        locations.disable(box.connection, location.name)
        wait_until(lambda: send_request(http)[0].status == 503, what="a closed location")
        locations.enable(box.connection, location.name)
        wait_until(lambda: send_request(http)[0].status == 202, what="an open location")
