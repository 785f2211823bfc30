"""ACC-50, ACC-51, SND-16: in which order two host instances send."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import postroom
from postroom import BTS, Message, Property
from tests.support.http_receiver import Handler, HttpReceiver, http_receiver
from tests.support.installation import Installation
from tests.support.waiting import wait_until

Region = Property("Orders.Region", str)
COUNT = 500
FAILING = 249


@pytest.fixture
def receiver() -> Iterator[HttpReceiver]:
    with http_receiver() as running:
        yield running


def list_numbers(receiver: HttpReceiver, path: str) -> list[int]:
    """Return the numbers of the messages that were accepted at a path, in order."""
    return [int(request.body) for request in receiver.accepted if request.path == path]


def test_ordered_ports_send_in_the_order_of_publishing(installation: Installation, receiver: HttpReceiver) -> None:
    """ACC-50: one message is refused. One port continues without it, another one stops until it is resumed."""
    refused = {"/continue", "/stop"}

    def refuse_one(handler: Handler) -> None:
        request = handler.take()
        if request.path in refused and int(request.body) == FAILING:
            handler.respond(400, b"no")
        else:
            receiver.accepted.append(request)
            handler.respond(200)

    receiver.behave = refuse_one
    base = receiver.url.removesuffix("/orders")
    installation.apply(
        f"""
        for name, stops in (("all", False), ("continue", False), ("stop", True)):
            app.send_port(name, adapters.Http("{base}/" + name), filter=Region == "EU", ordered=True,
                          stop_on_failure=stops, retry=Retry(count=0))
        """
    )
    numbers = list(range(COUNT))
    others = [number for number in numbers if number != FAILING]
    with ExitStack() as hosts, postroom.connect(installation.database) as client:
        for _ in range(2):
            hosts.enter_context(installation.run_host())
        for number in numbers[:20]:
            client.publish(b"%d" % number, promoted={Region: "EU"})
        for start in range(20, COUNT, 80):
            batch = numbers[start : start + 80]
            client.publish_many([Message.of(b"%d" % number, promoted={Region: "EU"}) for number in batch])
        wait_until(lambda: len(list_numbers(receiver, "/all")) == COUNT, what="all messages of one port")
        wait_until(lambda: len(list_numbers(receiver, "/continue")) == COUNT - 1, what="the others of another port")
        assert list_numbers(receiver, "/all") == numbers
        assert list_numbers(receiver, "/continue") == others
        [failed] = installation.list_suspended("not-resumable")
        assert failed["service"] == "continue"
        [stopped] = wait_until(lambda: list_stopped(installation), what="the port that stopped, with all its messages")
        assert stopped["service"] == "stop"
        assert list_numbers(receiver, "/stop") == numbers[:FAILING]
        refused.clear()
        installation.run("instance", "resume", stopped["instance_id"])
        wait_until(lambda: len(list_numbers(receiver, "/stop")) == COUNT, what="all messages of the port that stopped")
        assert list_numbers(receiver, "/stop") == numbers


def list_stopped(installation: Installation) -> list[dict[str, Any]]:
    """Return the ordered port that stopped, as soon as the failed message and all messages after it wait at it."""
    return [one for one in installation.list_suspended("resumable") if one["messages"] == COUNT - FAILING]


def test_a_dynamic_port_has_one_order_for_all_addresses(installation: Installation, receiver: HttpReceiver) -> None:
    """SND-16: messages for another address wait while a message is retried."""
    failures = iter(range(2))
    receiver.behave = lambda handler: (
        handler.answer(503) if handler.path == "/a" and next(failures, None) is not None else handler.accept()
    )
    base = receiver.url.removesuffix("/orders")
    installation.apply(
        """
        app.dynamic_send_port("Anywhere", filter=Region == "EU", ordered=True,
                              retry=Retry(count=3, interval=0.1))
        """
    )
    expected = [(path, b"%d" % number) for number, path in enumerate(("/a", "/b", "/c") * 4)]
    with postroom.connect(installation.database) as client:
        for path, body in expected:
            client.publish(body, promoted={Region: "EU"}, written={BTS.OutboundTransportLocation: base + path})
    with installation.run_host():
        wait_until(lambda: len(receiver.accepted) == len(expected), what="all messages")
    assert [(request.path, request.body) for request in receiver.requests] == [expected[0]] * 2 + expected


def test_a_backlog_is_sent_by_priority(installation: Installation, receiver: HttpReceiver) -> None:
    """ACC-51, DEQ-10, DEQ-11: all messages of priority 1 come before those of priority 10, which were published
    before."""
    installation.apply(
        f"""
        app.send_port("Low", adapters.Http("{receiver.url}"), filter=Region.exists(), priority=10)
        app.send_port("High", adapters.Http("{receiver.url}"), filter=Region == "EU", priority=1)
        """
    )
    installation.run("service-class", "set", "messaging_in_process", "--threads", "1")
    with postroom.connect(installation.database) as client:
        for number in range(30):
            client.publish(b"%d" % number, promoted={Region: "EU" if number % 2 else "US"})
    with installation.run_host():
        wait_until(lambda: len(receiver.accepted) == 45, what="all messages")
    bodies = [int(request.body) for request in receiver.accepted]
    assert sorted(bodies[:15]) == list(range(1, 30, 2))
    assert sorted(bodies[15:]) == list(range(30))
