"""A circuit breaker pauses a send port whose receiver is dead, and tries single messages as probes."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from postroom import CircuitBreaker, adapters
from postroom.adapters import Attempt
from postroom.errors import DeliveryFailure, DeliveryRefused
from postroom.hosts import HostInstance
from postroom.message import Message
from postroom.messagebox.instances import InstanceQuery, InstanceState, list_instances
from postroom.messagebox.maintenance.check import check
from postroom.operations.ports.send_ports import list_ports
from postroom.system_properties import BTS
from tests.integration.hosts.conftest import SETTINGS, StartHost
from tests.support import changes
from tests.support.box import Box, Region
from tests.support.http_receiver import Handler, http_receiver
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

#: Opens at the third failure. Its probes are due at once.
EAGER = CircuitBreaker(failures=3, period=0, probe_interval=0)
#: Opens at the third failure. Its probes are due when a test says so.
PATIENT = CircuitBreaker(failures=3, period=0, probe_interval=3600)


class Receiver:
    """A behaviour: fails while the receiver is down."""

    def __init__(self) -> None:
        self.is_down = True

    def __call__(self, message: Message, attempt: Attempt) -> None:
        if self.is_down:
            raise DeliveryFailure("The receiver is down.", why="It does not answer.")


def publish(box: Box, count: int) -> None:
    box.agent().publish([Message.of(str(number).encode(), promoted={Region: "EU"}) for number in range(count)])


def add_port(box: Box, breaker: CircuitBreaker, **settings: Any) -> None:
    given = {"retry_count": 3, "retry_seconds": 0, **settings}
    box.add_port("Europe", "Orders.Region == 'EU'", circuit_breaker=breaker, **given)


def let_probe(box: Box) -> None:
    box.let_circuits_probe()


def count_paused(box: Box) -> int:
    return int(box.count("paused"))


def count_probes(box: Box) -> int:
    return box.open_circuits()[0].probes


def test_a_dead_receiver_pauses_the_port_and_suspends_nothing(box: Box, start_host: StartHost) -> None:
    add_port(box, PATIENT)
    receiver = Receiver()
    recorder = RecordingAdapter(receiver)
    instance = start_host(recorder)
    publish(box, 300)
    wait_until(lambda: count_paused(box) == 300)
    attempts = len(recorder.attempts)
    assert 3 <= attempts < 30, "some messages were in progress"
    assert instance.counts["suspended"] == 0
    waiting = list_instances(box.connection, InstanceQuery())
    assert {(each.state, each.retry_at) for each in waiting} == {(InstanceState.SCHEDULED, None)}
    (port,) = list_ports(box.connection)
    assert (port.scheduled, port.next_attempt_at) == (300, None)
    assert port.paused_because == "The receiver is down.\nIt does not answer."
    assert f"process {os.getpid()}" in str(port.paused_by)
    receiver.is_down = False
    let_probe(box)
    wait_until(lambda: instance.counts["completed"] == 300)
    wait_until(lambda: box.count("open circuits") == 0)
    assert len({sent.body for sent in recorder.sent}) == 300
    assert max(sent.attempt.number for sent in recorder.sent) <= 4
    assert check(box.connection) == []


def test_probes_are_single_messages_and_use_up_no_attempts(box: Box, start_host: StartHost) -> None:
    add_port(box, PATIENT, retry_count=0)
    recorder = RecordingAdapter(Receiver())
    instance = start_host(recorder)
    publish(box, 20)
    wait_until(lambda: count_paused(box) + box.count("suspended") == 20)
    paused = count_paused(box)
    assert paused > 5
    for probes in range(1, 5):
        before = len(recorder.attempts)
        let_probe(box)
        wait_until(lambda: count_probes(box) == probes)  # noqa: B023 - waits for this probe
        wait_until(lambda: len(recorder.attempts) == before + 1)  # noqa: B023
        wait_until(lambda: count_paused(box) == paused)
    assert box.count("suspended") == 20 - paused
    assert len({attempt.body for attempt in recorder.attempts[-4:]}) == 4, "each probe is another message"
    assert instance.counts["completed"] == 0


def test_a_message_that_can_never_be_sent_does_not_keep_the_breaker_open(box: Box, start_host: StartHost) -> None:
    add_port(box, EAGER)
    receiver = Receiver()

    def refuse_first(message: Message, attempt: Attempt) -> None:
        receiver(message, attempt)
        if message.body is not None and message.body.data == b"0":
            raise DeliveryRefused("It does not fit.")

    recorder = RecordingAdapter(refuse_first)
    instance = start_host(recorder)
    publish(box, 10)
    wait_until(lambda: box.count("open circuits") == 1)
    receiver.is_down = False
    wait_until(lambda: instance.counts["completed"] == 9)
    wait_until(lambda: box.suspended() == [("DELIVERY_REFUSED", True)])
    assert check(box.connection) == []


def test_failures_of_messages_do_not_open_the_breaker(box: Box, start_host: StartHost) -> None:
    add_port(box, EAGER)

    def refuse(message: Message, attempt: Attempt) -> None:
        raise DeliveryRefused("It does not fit.")

    instance = start_host(RecordingAdapter(refuse))
    publish(box, 10)
    wait_until(lambda: instance.counts["suspended"] == 10)
    assert box.count("open circuits") == 0


def test_failures_in_less_than_the_period_do_not_open_the_breaker(box: Box, start_host: StartHost) -> None:
    add_port(box, CircuitBreaker(failures=3, period=3600), retry_count=0)
    instance = start_host(RecordingAdapter(Receiver()))
    publish(box, 10)
    wait_until(lambda: instance.counts["suspended"] == 10)
    assert box.count("open circuits") == 0


def test_a_success_between_failures_starts_the_count_again(box: Box, start_host: StartHost) -> None:
    add_port(box, CircuitBreaker(failures=2, period=0), retry_count=0)
    lock = threading.Lock()
    calls = 0

    def fail_every_other(message: Message, attempt: Attempt) -> None:
        nonlocal calls
        with lock:
            calls += 1
            if calls % 2:
                raise DeliveryFailure("Sometimes.")

    recorder = RecordingAdapter(fail_every_other)
    instance = start_host(recorder)
    for number in range(1, 9):
        publish(box, 1)
        wait_until(lambda: instance.counts["completed"] + instance.counts["suspended"] == number)  # noqa: B023
    assert box.count("open circuits") == 0


def test_the_breaker_is_shared_by_the_instances_of_a_host(box: Box, start_host: StartHost) -> None:
    add_port(box, PATIENT)
    receiver = Receiver()
    first = start_host(RecordingAdapter(receiver))
    publish(box, 20)
    wait_until(lambda: count_paused(box) == 20)
    first.stop()
    recorder = RecordingAdapter(receiver)
    second = start_host(recorder)
    publish(box, 20)
    wait_until(lambda: second.counts["postponed"] == 20)
    assert recorder.attempts == [], "it has not failed itself, but knows that the receiver is dead"
    receiver.is_down = False
    let_probe(box)
    wait_until(lambda: second.counts["completed"] == 40)


def test_a_paused_instance_can_be_suspended_and_resumed(box: Box, start_host: StartHost) -> None:
    add_port(box, PATIENT)
    receiver = Receiver()
    instance = start_host(RecordingAdapter(receiver))
    publish(box, 10)
    wait_until(lambda: count_paused(box) == 10)
    assert changes.suspend_all(box.connection, InstanceQuery()) == 10
    postponed = instance.counts["postponed"]
    assert changes.resume_all(box.connection, InstanceQuery()) == 10
    wait_until(lambda: instance.counts["postponed"] == postponed + 10)
    receiver.is_down = False
    let_probe(box)
    wait_until(lambda: instance.counts["completed"] == 10)


def test_an_ordered_port_keeps_its_order_while_it_is_paused(box: Box, start_host: StartHost) -> None:
    add_port(box, EAGER, ordered=True)
    receiver = Receiver()
    recorder = RecordingAdapter(receiver)
    instance = start_host(recorder)
    for number in range(20):
        box.agent().publish([Message.of(str(number).encode(), promoted={Region: "EU"})])
    wait_until(lambda: box.count("open circuits") == 1)
    wait_until(lambda: count_probes(box) > 3)
    receiver.is_down = False
    wait_until(lambda: instance.counts["completed"] == 20)
    assert [int(body) for body in recorder.bodies] == list(range(20))
    assert instance.counts["suspended"] == 0


def test_a_removed_breaker_releases_what_it_paused(box: Box, start_host: StartHost) -> None:
    add_port(box, PATIENT, retry_count=0)
    receiver = Receiver()
    instance = start_host(RecordingAdapter(receiver))
    publish(box, 10)
    wait_until(lambda: box.count("open circuits") == 1)
    wait_until(lambda: box.count("scheduled") + box.count("suspended") == 10)
    paused = box.count("scheduled")
    receiver.is_down = False
    with box.connection.transaction():
        box.set_ports(circuit_breaker=None)
        box.delete_all("open circuits")
        box.connection.execute("SELECT release_postponed(%s)", (box.port().port_id,))
    wait_until(lambda: instance.counts["completed"] == paused)


@pytest.mark.parametrize("expires_by", ["the port", "the message"])
def test_a_paused_message_expires_while_the_breaker_is_open(box: Box, start_host: StartHost, expires_by: str) -> None:
    add_port(box, PATIENT, expire_seconds=3600 if expires_by == "the port" else None)
    instance = start_host(RecordingAdapter(Receiver()))
    expires_at = datetime.now(UTC) + timedelta(hours=1)
    own = {BTS.ExpirationTime: expires_at} if expires_by == "the message" else {}
    box.agent().publish([Message.of(b"1", promoted={Region: "EU"}, written=own) for _ in range(20)])
    wait_until(lambda: count_paused(box) == 20)
    now = datetime.now(UTC)
    expiry = (now + timedelta(minutes=50), now + timedelta(hours=1))
    assert all(expiry[0] < row.valid_from <= expiry[1] for row in box.scheduled_rows() if row.valid_from)
    waiting = list_instances(box.connection, InstanceQuery())
    assert {(each.state, each.retry_at) for each in waiting} == {(InstanceState.SCHEDULED, None)}
    if expires_by == "the message":
        return
    box.age_queues(timedelta(hours=1))
    wait_until(lambda: instance.counts["suspended"] == 20)
    assert set(box.suspended()) == {("EXPIRED", True)}
    assert box.count("open circuits") == 1
    assert check(box.connection) == []


def test_a_web_server_that_answers_500_for_a_while_gets_every_message(box: Box, tmp_path: Path) -> None:
    with http_receiver() as server:
        server.behave = lambda handler: handler.answer(500)
        definition = adapters.Http(server.url).model_dump(mode="json")
        box.add_port(
            "Europe", "Orders.Region == 'EU'", adapter=definition, circuit_breaker=EAGER, retry_count=1, retry_seconds=0
        )
        with HostInstance(box.url, "Default", tmp_path, as_role=True, settings=SETTINGS) as instance:
            publish(box, 50)
            wait_until(lambda: box.count("open circuits") == 1)
            wait_until(lambda: len(server.requests) > 10, what="some probes")
            assert "500" in box.open_circuits()[0].reason
            server.behave = Handler.accept
            wait_until(lambda: instance.counts["completed"] + box.count("suspended") == 50)
            assert box.count("suspended") <= 4
