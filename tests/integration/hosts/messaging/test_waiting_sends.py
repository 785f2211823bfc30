"""Messages that wait for a slow HTTP receiver occupy no dequeue thread (DEQ-20)."""

from __future__ import annotations

import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from postroom import adapters
from postroom.hosts import HostInstance
from postroom.message import Message
from postroom.messagebox.maintenance.check import check
from tests.integration.hosts.conftest import SETTINGS
from tests.integration.hosts.dequeue.test_takeover import complete_as_another, end_lock_connection
from tests.support.box import Box, Region
from tests.support.http_receiver import Handler, HttpReceiver, http_receiver
from tests.support.two_way import make_two_way
from tests.support.waiting import PATIENCE, wait_until

MESSAGES = 30


@pytest.fixture
def receiver() -> Iterator[HttpReceiver]:
    with http_receiver() as running:
        running.behave = answer_after_release
        yield running


def answer_after_release(handler: Handler) -> None:
    """Read the request, and confirm it when the test lets go."""
    request = handler.take()
    handler.receiver.released.wait(PATIENCE)
    handler.receiver.accepted.append(request)
    handler.respond(200, b"answer to " + request.body)


def start(box: Box, home: Path, *, threads: int = 1) -> HostInstance:
    box.set_dequeuing(threads=threads)
    return HostInstance(box.url, "Default", home, as_role=True, settings=SETTINGS)


def add_http_port(
    box: Box, receiver: HttpReceiver, name: str = "Slow", region: str = "EU", *, ordered: bool = False, **settings: Any
) -> None:
    definition = adapters.Http(receiver.url, **{"timeout": PATIENCE, **settings})
    box.add_port(name, f"Orders.Region == '{region}'", adapter=definition.model_dump(mode="json"), ordered=ordered)


def publish(box: Box, count: int = MESSAGES, region: str = "EU") -> None:
    box.agent().publish([Message.of(str(number).encode(), promoted={Region: region}) for number in range(count)])


def count_bodies(requests: list[Any]) -> Counter[bytes]:
    return Counter(request.body for request in requests)


def expect_bodies(count: int = MESSAGES) -> Counter[bytes]:
    return Counter(str(number).encode() for number in range(count))


def test_one_thread_sends_many_messages_to_a_slow_receiver(box: Box, receiver: HttpReceiver, tmp_path: Path) -> None:
    add_http_port(box, receiver)
    publish(box)
    with start(box, tmp_path) as instance:
        wait_until(lambda: len(receiver.requests) == MESSAGES)
        assert receiver.accepted == []
        receiver.released.set()
        wait_until(lambda: instance.counts["completed"] == MESSAGES)
        assert instance.messaging.handling_time[0] == MESSAGES
    assert count_bodies(receiver.requests) == expect_bodies()
    assert check(box.connection) == []


def test_one_thread_sends_many_messages_to_a_slow_receiver_over_tls(box: Box, tmp_path: Path) -> None:
    """A server of TLS 1.3 sends session tickets before its response."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(certificate)
    with http_receiver(certificate) as receiver:
        receiver.behave = answer_after_release
        add_http_port(box, receiver, ca_file="ca.pem")
        publish(box)
        with start(box, tmp_path) as instance:
            wait_until(lambda: len(receiver.requests) == MESSAGES)
            receiver.released.set()
            wait_until(lambda: instance.counts["completed"] == MESSAGES)
    assert count_bodies(receiver.requests) == expect_bodies()


def test_the_responses_of_a_two_way_port_are_published(box: Box, receiver: HttpReceiver, tmp_path: Path) -> None:
    add_http_port(box, receiver)
    make_two_way(box, "Slow")
    publish(box)
    with http_receiver() as audit:
        definition = adapters.Http(audit.url)
        box.add_port("Audit", "BTS.SPName == 'Slow'", adapter=definition.model_dump(mode="json"))
        with start(box, tmp_path):
            wait_until(lambda: len(receiver.requests) == MESSAGES)
            receiver.released.set()
            wait_until(lambda: len(audit.accepted) == MESSAGES)
        expected = {b"answer to " + body: count for body, count in expect_bodies().items()}
        assert count_bodies(audit.accepted) == expected
    assert count_bodies(receiver.requests) == expect_bodies()
    assert box.count("queued") == 0


def test_a_port_has_no_more_connections_than_declared(box: Box, receiver: HttpReceiver, tmp_path: Path) -> None:
    add_http_port(box, receiver, connections=3)
    publish(box, 300)
    with http_receiver() as fast:
        add_http_port(box, fast, "Fast", "US")
        publish(box, 300, "US")
        with start(box, tmp_path, threads=5) as instance:
            wait_until(lambda: len(fast.accepted) == 300)
            assert len(receiver.requests) == 3
            most = 3

            def is_delivered() -> bool:
                nonlocal most
                most = max(most, len(receiver.requests) - len(receiver.accepted))
                return instance.counts["completed"] == 600

            receiver.released.set()
            wait_until(is_delivered)
    assert most <= 3
    assert count_bodies(receiver.requests) == expect_bodies(300)
    assert check(box.connection) == []


def test_an_ordered_port_waits_for_each_answer(box: Box, receiver: HttpReceiver, tmp_path: Path) -> None:
    add_http_port(box, receiver, ordered=True)
    publish(box, 5)
    with http_receiver() as fast:
        add_http_port(box, fast, "Fast", "US")
        publish(box, 5, "US")
        with start(box, tmp_path) as instance:
            wait_until(lambda: len(fast.accepted) == 5)
            wait_until(lambda: len(receiver.requests) == 1)
            receiver.released.set()
            wait_until(lambda: instance.counts["completed"] == 10)
    assert [request.body for request in receiver.accepted] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_stopped_host_finishes_the_messages_that_wait(box: Box, receiver: HttpReceiver, tmp_path: Path) -> None:
    """HST-09."""
    add_http_port(box, receiver, connections=MESSAGES)
    publish(box, 2 * MESSAGES)
    instance = start(box, tmp_path)
    instance.start()
    wait_until(lambda: len(receiver.requests) == MESSAGES)
    stopping = threading.Thread(target=instance.stop)
    stopping.start()
    wait_until(lambda: instance.messaging._buffer._closed)
    receiver.released.set()
    stopping.join(PATIENCE)
    assert not stopping.is_alive()
    assert instance.counts["completed"] == len(receiver.requests) == MESSAGES
    assert box.count("unclaimed") == box.count("queued") == MESSAGES
    assert check(box.connection) == []


def test_a_host_that_regains_its_lock_keeps_the_messages_that_wait(
    box: Box, receiver: HttpReceiver, tmp_path: Path
) -> None:
    add_http_port(box, receiver)
    publish(box)
    with start(box, tmp_path) as instance:
        wait_until(lambda: len(receiver.requests) == MESSAGES)
        end_lock_connection(box, instance.host_instance)
        wait_until(lambda: instance.registration.regained_locks == 1)
        receiver.released.set()
        wait_until(lambda: instance.counts["completed"] == MESSAGES)
    assert count_bodies(receiver.requests) == expect_bodies()


def test_the_result_of_a_claim_that_was_taken_over_is_discarded(
    box: Box, receiver: HttpReceiver, tmp_path: Path
) -> None:
    add_http_port(box, receiver)
    publish(box)
    with start(box, tmp_path) as instance:
        wait_until(lambda: len(receiver.requests) == MESSAGES)
        complete_as_another(box)
        receiver.released.set()
        wait_until(lambda: instance.counts["discarded"] == MESSAGES)
        assert instance.counts["completed"] == 0
    assert check(box.connection) == []


def test_messages_without_an_answer_are_retried(box: Box, receiver: HttpReceiver, tmp_path: Path) -> None:
    add_http_port(box, receiver, timeout=1)
    publish(box, 3)
    with start(box, tmp_path) as instance:
        wait_until(lambda: instance.counts["retried"] == 3)
        receiver.released.set()
    reasons = [str(row.error_description) for row in box.scheduled_rows()]
    assert len(reasons) == 3
    assert all("Read timed out" in reason for reason in reasons)


def test_a_port_takes_a_new_limit_while_messages_wait(box: Box, receiver: HttpReceiver, tmp_path: Path) -> None:
    add_http_port(box, receiver, connections=2)
    publish(box)
    with start(box, tmp_path) as instance:
        wait_until(lambda: len(receiver.requests) == 2)
        changed = adapters.Http(receiver.url, timeout=PATIENCE, connections=10)
        box.set_ports("Slow", adapter=changed.model_dump(mode="json"))
        box.connection.execute("SELECT change_routing()")
        publish(box, 1)
        wait_until(lambda: len(receiver.requests) > 2)
        receiver.released.set()
        wait_until(lambda: instance.counts["completed"] == MESSAGES + 1)
