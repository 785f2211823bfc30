"""A service that is not messaging subscribes, receives in order and completes its instances (SUB-06, ORC-21)."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from postroom.hosts import ServiceContext
from postroom.hosts.dequeue.service import Outcome
from postroom.message import Message
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import connect
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.queues import ClaimedMessage, HostQueues, ScheduledRetry, Suspension
from postroom.messagebox.subscriptions import ServiceSubscriptions
from postroom.operations.instances.changes import resume
from tests.integration.hosts.conftest import StartHost
from tests.support.box import Box, Priority, Region
from tests.support.collecting_service import SERVICE, Collector
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import PATIENCE, wait_until

CLASSES = [ServiceClass.ORCHESTRATIONS, ServiceClass.CACHING, ServiceClass.MESSAGING_ISOLATED]


@pytest.fixture
def context(box: Box) -> ServiceContext:
    """Return the context that a host instance would create, for tests without a running instance."""
    return ServiceContext(
        host=box.host(),
        queues=HostQueues("Default"),
        subscriptions=ServiceSubscriptions(box.host(), ServiceClass.ORCHESTRATIONS),
        connect=partial(connect, box.url, user=box.host().role_name),
    )


def serve(
    start_host: StartHost, service_class: ServiceClass = ServiceClass.ORCHESTRATIONS, **settings: Any
) -> Collector:
    """Start a host instance with a collector for this service class."""
    created: list[Collector] = []

    def build(context: ServiceContext) -> Collector:
        created.append(Collector(context, **settings))
        return created[0]

    start_host(RecordingAdapter(), services={service_class: build})
    return created[0]


def publish(box: Box, region: str, *bodies: str, priority: int = 1) -> None:
    for body in bodies:
        box.agent(warm=False).publish([Message.of(body.encode(), promoted={Region: region, Priority: priority})])


def list_received(service: Collector) -> list[str]:
    return sorted("".join(body.decode() for body in bodies) for bodies in service.received.values())


@pytest.mark.parametrize("service_class", CLASSES, ids=lambda service_class: service_class.name.lower())
def test_a_service_of_any_class_is_activated_and_receives_messages_for_its_instances(
    box: Box, start_host: StartHost, service_class: ServiceClass
) -> None:
    """The first message activates the instance. Replies go to the instance until it completes."""
    service = serve(start_host, service_class, waits_for=lambda message: Region == "reply", size=3)
    service.enlist(Region == "order")
    publish(box, "order", "a")
    wait_until(lambda: list_received(service) == ["a"], what="the activated instance")
    publish(box, "reply", "b")
    publish(box, "reply", "c")
    wait_until(lambda: len(service.left) == 1, what="the completed instance")
    assert list_received(service) == ["abc"]
    assert list(service.left.values()) == [[]]
    assert box.count("instances") == 0
    assert box.count("subscriptions WHERE instance_id IS NOT NULL AND removed_at IS NULL") == 0
    assert check(box.connection) == []


def test_convoys_that_were_queued_while_no_host_ran_are_served_in_order(
    box: Box, start_host: StartHost, context: ServiceContext
) -> None:
    Collector(context).enlist(Region.exists(), convoy=[Region])
    for body in ("k1", "l1", "k2", "l2", "k3", "k4", "l3", "k5"):
        publish(box, body[0].upper(), body)
    service = serve(start_host)
    wait_until(lambda: box.count("instances") == 0, what="all messages received")
    assert list_received(service) == ["k1k2k3k4k5", "l1l2l3"]
    assert service.at_the_same_time == 0


def test_a_long_convoy_is_served_one_message_at_a_time(
    box: Box, start_host: StartHost, context: ServiceContext
) -> None:
    """The convoy is longer than one claim. Two host instances with five threads each serve it."""
    Collector(context).enlist(Region.exists(), convoy=[Region])
    agent = box.agent()
    numbers = range(250)
    for start in range(0, 250, 50):
        agent.publish(
            [
                Message.of(f"{number},".encode(), promoted={Region: region})
                for number in numbers[start : start + 50]
                for region in "KL"
            ]
        )
    first, second = serve(start_host), serve(start_host)
    wait_until(lambda: box.count("instances") == 0, what="all messages received")
    assert first.at_the_same_time == second.at_the_same_time == 0
    for instance in {*first.received, *second.received}:
        parts = [service.received[instance] for service in (first, second)]
        assert sorted(int(body[:-1]) for bodies in parts for body in bodies) == list(numbers)
        for bodies in parts:
            assert bodies == sorted(bodies, key=lambda body: int(body[:-1]))
    assert check(box.connection) == []


def test_messages_after_a_failed_message_of_an_instance_wait(
    box: Box, start_host: StartHost, context: ServiceContext
) -> None:
    """The second message is retried, the fourth is suspended and resumed. The order does not change."""
    Collector(context).enlist(Region.exists(), convoy=[Region])
    refused: list[bytes] = []

    def step(service: Collector, claimed: ClaimedMessage, message: Message) -> Outcome | None:
        assert message.body is not None
        body = message.body.data
        if body in (b"2", b"4") and body not in refused:
            refused.append(body)
            if body == b"2":
                return ScheduledRetry(delay=timedelta(seconds=0.05), code="NOT_YET", description="Not yet.")
            return Suspension(code="NOT_AT_ALL", description="Not at all.")
        return None

    publish(box, "K", *"12345")
    publish(box, "L", *"abc")
    service = serve(start_host, step=step)
    wait_until(lambda: list_received(service) == ["123", "abc"], what="all messages before the suspended message")
    wait_until(lambda: box.suspended() == [("NOT_AT_ALL", True)], what="the fourth message suspended")
    publish(box, "K", "6")
    assert box.count("work_queue") == 2
    resume(box.connection, box.one("SELECT instance_id FROM suspended_queue"))
    wait_until(lambda: list_received(service) == ["123456", "abc"], what="the remaining messages")
    assert service.at_the_same_time == 0


def test_a_defect_of_the_service_loses_nothing(box: Box, start_host: StartHost, context: ServiceContext) -> None:
    Collector(context).enlist(Region.exists(), convoy=[Region])
    failed: list[uuid.UUID] = []

    def step(service: Collector, claimed: ClaimedMessage, message: Message) -> Outcome | None:
        if not failed:
            failed.append(claimed.instance_id)
            raise ZeroDivisionError
        return None

    publish(box, "K", *"123")
    service = serve(start_host, step=step)
    wait_until(lambda: list_received(service) == ["123"], what="all messages, in order")


def test_unconsumed_messages_are_returned_and_stay_queued(
    box: Box, start_host: StartHost, context: ServiceContext
) -> None:
    Collector(context).enlist(Region.exists(), convoy=[Region])
    publish(box, "K", *"1234")
    service = serve(start_host, size=3)
    wait_until(lambda: len(service.left) == 1, what="the completed instance")
    [(instance, left)] = service.left.items()
    assert len(left) == 1
    wait_until(lambda: box.count("instances") == 0, what="the last message, which the completed instance receives")
    assert service.received[instance] == [b"1", b"2", b"3", b"4"]


def test_messaging_suspends_messages_for_instances_of_other_services(
    box: Box, start_host: StartHost, context: ServiceContext
) -> None:
    start_host(RecordingAdapter())
    messaging = ServiceSubscriptions(box.host(), ServiceClass.MESSAGING_IN_PROCESS)
    with context.connect() as connection:
        messaging.wait(connection, SERVICE, uuid.uuid4(), Region == "EU")
    publish(box, "EU", "x")
    wait_until(lambda: box.suspended() == [("NO_RECEIVER", True)], what="the suspended message")


def test_another_host_instance_continues_after_one_stopped(
    box: Box, start_host: StartHost, context: ServiceContext
) -> None:
    """The first instance stops while it processes the second message. It releases the messages in its memory queue."""
    Collector(context).enlist(Region.exists(), convoy=[Region])
    publish(box, "K", *"12345")
    created: list[Collector] = []
    at_two, released = threading.Event(), threading.Event()

    def step(service: Collector, claimed: ClaimedMessage, message: Message) -> Outcome | None:
        if len(service.received.get(claimed.instance_id, ())) == 1:
            at_two.set()
            assert released.wait(PATIENCE)
        return None

    def build(context: ServiceContext) -> Collector:
        created.append(Collector(context, step=step))
        return created[-1]

    first = start_host(RecordingAdapter(), services={ServiceClass.ORCHESTRATIONS: build})
    assert at_two.wait(PATIENCE)
    with ThreadPoolExecutor() as pool:
        stopped = pool.submit(first.stop)
        wait_until(
            lambda: sum(len(subservice.unfinished_seqs) for subservice in first.subservices.running) == 1,
            what="only the message in progress left in memory",
        )
        released.set()
        stopped.result(30)
    assert list_received(created[0]) == ["12"]
    assert box.count("work_queue WHERE claim_id IS NULL") == 3
    service = serve(start_host)
    wait_until(lambda: list_received(service) == ["345"], what="the remaining messages, in order")
